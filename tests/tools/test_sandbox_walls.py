"""What a program finds: nothing of the call before, nothing of the project."""


def test_a_call_finds_nothing_of_the_call_before(sandbox):
    leave = (
        "import os, sys, builtins\nfor folder in ('/tmp', '/dev/shm'):\n"
        "    open(folder + '/left', 'w').write('secret')\n"
        "builtins.left = sys.left = 1\nos.environ['LEFT'] = '1'"
    )
    look = (
        "import os, sys, builtins\nprint(os.listdir('/tmp'), os.listdir('/dev/shm'), "
        "hasattr(builtins, 'left'), hasattr(sys, 'left'), 'LEFT' in os.environ)"
    )
    for _ in range(6):
        assert sandbox.run(leave).text == "[no output]"
        assert sandbox.run(look).text == "[] [] False False False"


def test_random_numbers_differ_between_calls_but_hashes_do_not(sandbox):
    texts = [sandbox.run("import random\nrandom.random()").text for _ in range(4)]
    hashes = [sandbox.run("hash('a'), list({'b', 'c', 'd'})").text for _ in range(4)]
    assert len(set(texts)) == 4
    assert len(set(hashes)) == 1


def test_times_of_devices_cannot_be_changed_but_they_can_be_used(sandbox):
    code = (
        "import os\nfor name in ('null', 'zero', 'full', 'random', 'urandom'):\n"
        "    try: os.utime('/dev/' + name)\n    except OSError as error: print(error.errno)\n"
        "for name in ('null', 'urandom'): open('/dev/' + name, 'wb').write(b'x')\n"
        "print(len(open('/dev/urandom', 'rb').read(3)), open('/dev/zero', 'rb').read(2))"
    )
    assert sandbox.run(code).text == "30\n30\n30\n30\n30\n3 b'\\x00\\x00'"


def test_the_project_and_installed_packages_are_not_there(sandbox):
    code = (
        "import sys, os, glob\n"
        "print(glob.glob(sys.prefix + '/lib/python3*/site-packages/*'))\n"
        "import importlib.util\n"
        "print([importlib.util.find_spec(n) for n in ('forethought', 'pydantic', 'pip', 'inside')])"
    )
    assert sandbox.run(code).text == "[]\n[None, None, None, None]"
