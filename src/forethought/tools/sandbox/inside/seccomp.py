"""The system calls a program may make, as a filter for the kernel (x86-64).

An allow list: what is not on it fails with EPERM, what the kernel may invent later with ENOSYS.
Absent on purpose: sockets (only connected pairs are allowed, and no pairs for datagrams, which can
be sent past the other end to any socket that has a name), namespaces, mounts, ptrace, keys, bpf,
io_uring, userfaultfd, perf, memfd, System V memory, and shared memory that is no file.
"""

import ctypes
import errno
import os
from collections.abc import Iterable
from struct import Struct

from . import kernel

_ALLOWED = """
read=0 write=1 open=2 close=3 stat=4 fstat=5 lstat=6 poll=7 lseek=8 mmap=9 mprotect=10
munmap=11 brk=12 rt_sigaction=13 rt_sigprocmask=14 rt_sigreturn=15 pread64=17 pwrite64=18
readv=19 writev=20 access=21 pipe=22 select=23 sched_yield=24 mremap=25 msync=26 mincore=27
madvise=28 dup=32 dup2=33 pause=34 nanosleep=35 getitimer=36 alarm=37 setitimer=38 getpid=39
sendfile=40 sendto=44 recvfrom=45 sendmsg=46 recvmsg=47 shutdown=48 getsockname=51
getpeername=52 setsockopt=54 getsockopt=55 fork=57 vfork=58 execve=59 exit=60 wait4=61
kill=62 uname=63 fcntl=72 flock=73 fsync=74 fdatasync=75 truncate=76 ftruncate=77
getdents=78 getcwd=79 chdir=80 fchdir=81 rename=82 mkdir=83 rmdir=84 creat=85 link=86
unlink=87 symlink=88 readlink=89 chmod=90 fchmod=91 chown=92 fchown=93 lchown=94 umask=95
gettimeofday=96 getrlimit=97 getrusage=98 sysinfo=99 times=100 getuid=102 getgid=104
geteuid=107 getegid=108 setpgid=109 getppid=110 getpgrp=111 setsid=112 getgroups=115
getresuid=118 getresgid=120 getpgid=121 getsid=124 capget=125 rt_sigpending=127
rt_sigtimedwait=128 rt_sigqueueinfo=129 rt_sigsuspend=130 sigaltstack=131 utime=132
statfs=137 fstatfs=138 getpriority=140 sched_getparam=143 sched_getscheduler=145
sched_get_priority_max=146 sched_get_priority_min=147 mlock=149 munlock=150 munlockall=152
prctl=157 arch_prctl=158 setrlimit=160 gettid=186 readahead=187 getxattr=191 lgetxattr=192
fgetxattr=193 listxattr=194 llistxattr=195 flistxattr=196 tkill=200 time=201 futex=202
sched_setaffinity=203 sched_getaffinity=204 epoll_create=213 getdents64=217
set_tid_address=218 restart_syscall=219 fadvise64=221 timer_create=222 timer_settime=223
timer_gettime=224 timer_getoverrun=225 timer_delete=226 clock_gettime=228 clock_getres=229
clock_nanosleep=230 exit_group=231 epoll_wait=232 epoll_ctl=233 tgkill=234 utimes=235
waitid=247 openat=257 mkdirat=258 fchownat=260 futimesat=261 newfstatat=262 unlinkat=263
renameat=264 linkat=265 symlinkat=266 readlinkat=267 fchmodat=268 faccessat=269 pselect6=270
ppoll=271 set_robust_list=273 get_robust_list=274 splice=275 tee=276 sync_file_range=277
utimensat=280 epoll_pwait=281 signalfd=282 timerfd_create=283 eventfd=284 fallocate=285
timerfd_settime=286 timerfd_gettime=287 signalfd4=289 eventfd2=290 epoll_create1=291
dup3=292 pipe2=293 preadv=295 pwritev=296 rt_tgsigqueueinfo=297 recvmmsg=299 prlimit64=302
sendmmsg=307 getcpu=309 renameat2=316 getrandom=318 execveat=322 membarrier=324 mlock2=325
copy_file_range=326 preadv2=327 pwritev2=328 statx=332 rseq=334 pidfd_send_signal=424
pidfd_open=434 close_range=436 openat2=437 faccessat2=439 epoll_pwait2=441 futex_waitv=449
fchmodat2=452
"""

_MMAP, _MMAP_FLAGS, _SHARED_ANONYMOUS = 9, 40, 0x21
_CLONE, _CLONE3, _SOCKETPAIR, _IOCTL, _PRCTL = 56, 435, 53, 16, 157
_LAST_KNOWN = 453
_X32 = 0x40000000
_X86_64 = 0xC000003E
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _MASK, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_SIBLING = 0x00008000
"""CLONE_PARENT: a child of the server and not of the call. Nobody would reap it, so that the call
could not end, and its memory would be no call's."""
_NOT_CLONED = (
    _SIBLING
    | kernel.NEW_CGROUP
    | kernel.NEW_IPC
    | kernel.NEW_MOUNT
    | kernel.NEW_NET
    | kernel.NEW_PID
    | kernel.NEW_USER
    | kernel.NEW_UTS
)
_UNIX_SOCKETS = 1
_TYPE_OF_SOCKET, _STREAM, _PACKETS = 0xF, 1, 5  # the other bits: close on exec, do not block
_IOCTLS = (0x5412, 0x541C, 0x5423, 0x8901, 0x8902)  # typing into terminals; whom to signal
_PRCTLS = (1, 4)  # outliving the server; keeping it from seeing what is open

_THREAD = 0x00010000
_ITSELF = 0xFFFFFFFE  # stands for the number of the process that installs the filter
_KILL, _TGKILL, _PRLIMIT, _SET_AFFINITY, _FCNTL = 62, 234, 302, 203, 72
_WATCHES = (1024, 1026)  # F_SETLEASE, F_NOTIFY: files that others read, and when they do
_FCNTLS = (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX: signals by way of a file
_ALONE_REFUSED = (
    *(57, 58),  # fork, vfork
    *(76, 90, 91, 92, 93, 94, 132, 235, 260, 261, 268, 280, 452),  # sizes, modes, owners, times
    *(129, 200, 297, 424, 434),  # signals to others
)

_INSTRUCTION = Struct("HBBI")
_PROGRAM = Struct("HxxxxxxP")

Instruction = tuple[int, int, int, int]

_KILLED: Instruction = (_RETURN, 0, 0, 0x80000000)
_ALLOWED_CALL: Instruction = (_RETURN, 0, 0, _ALLOW)
_REFUSED: Instruction = (_RETURN, 0, 0, _FAIL | errno.EPERM)
_UNKNOWN: Instruction = (_RETURN, 0, 0, _FAIL | errno.ENOSYS)


class Filter:
    """The filter, ready for the kernel.

    `alone` is for programs that are the same user as the host's other processes: they may start
    no process, signal or limit none but their own, and change no file's mode, owner or times.
    """

    def __init__(self, *, alone: bool = False) -> None:
        self._instructions = _instructions(_alone() if alone else [])
        if not alone:
            self._pack(0)

    def install(self) -> None:
        """Put it on this process, for good."""
        if any(_ITSELF in instruction for instruction in self._instructions):
            self._pack(os.getpid())
        kernel.install_filter(self._program)

    def _pack(self, process: int) -> None:
        code = b"".join(
            _INSTRUCTION.pack(*parts, process if value == _ITSELF else value)
            for *parts, value in self._instructions
        )
        self._code = ctypes.create_string_buffer(code)
        program = _PROGRAM.pack(len(self._instructions), ctypes.addressof(self._code))
        self._program = ctypes.create_string_buffer(program)


def _instructions(before: list[Instruction]) -> list[Instruction]:
    return [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _X86_64),
        _KILLED,
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        _KILLED,
        *before,
        *_only_for(
            _CLONE,
            (_LOAD, 0, 0, _FIRST_ARGUMENT),
            (_ANY_BIT, 0, 1, _NOT_CLONED),
            _REFUSED,
            _ALLOWED_CALL,
        ),
        *_only_for(
            _SOCKETPAIR,
            (_LOAD, 0, 0, _FIRST_ARGUMENT),
            (_EQUAL, 0, 4, _UNIX_SOCKETS),
            (_LOAD, 0, 0, _SECOND_ARGUMENT),
            (_MASK, 0, 0, _TYPE_OF_SOCKET),
            (_EQUAL, 2, 0, _STREAM),
            (_EQUAL, 1, 0, _PACKETS),
            _REFUSED,
            _ALLOWED_CALL,
        ),
        # Pages of it that no process has mapped at the moment are held, but charged to nobody.
        *_only_for(
            _MMAP,
            (_LOAD, 0, 0, _MMAP_FLAGS),
            (_MASK, 0, 0, _SHARED_ANONYMOUS),
            (_EQUAL, 0, 1, _SHARED_ANONYMOUS),
            _REFUSED,
            _ALLOWED_CALL,
        ),
        *_unless(_FCNTL, _SECOND_ARGUMENT, _WATCHES),
        *_unless(_IOCTL, _SECOND_ARGUMENT, _IOCTLS),
        *_unless(_PRCTL, _FIRST_ARGUMENT, _PRCTLS),
        # The C library falls back from clone3, whose flags a filter cannot read, to clone.
        *_only_for(_CLONE3, _UNKNOWN),
        *_allowed_ranges(_ALLOWED_CALL),
        (_AT_LEAST, 0, 1, _LAST_KNOWN + 1),
        _UNKNOWN,
        _REFUSED,
    ]


def _alone() -> list[Instruction]:
    only_threads = (
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_ANY_BIT, 0, 1, _NOT_CLONED),
        _REFUSED,
        (_ANY_BIT, 1, 0, _THREAD),
        _REFUSED,
        _ALLOWED_CALL,
    )
    return [
        *_only_for(_CLONE, *only_threads),
        *_only_if(_KILL, _FIRST_ARGUMENT, _ITSELF),
        *_only_if(_TGKILL, _FIRST_ARGUMENT, _ITSELF),
        *_only_if(_PRLIMIT, _FIRST_ARGUMENT, 0),
        *_only_if(_SET_AFFINITY, _FIRST_ARGUMENT, 0),
        *_unless(_FCNTL, _SECOND_ARGUMENT, _FCNTLS + _WATCHES),
        *(each for number in _ALONE_REFUSED for each in _only_for(number, _REFUSED)),
    ]


def _only_for(number: int, *body: Instruction) -> list[Instruction]:
    return [(_EQUAL, 0, len(body), number), *body]


def _only_if(number: int, argument: int, value: int) -> list[Instruction]:
    """Allow a call whose argument has this value, and no other."""
    test = (_EQUAL, 0, 1, value)
    return _only_for(number, (_LOAD, 0, 0, argument), test, _ALLOWED_CALL, _REFUSED)


def _unless(number: int, argument: int, values: tuple[int, ...]) -> list[Instruction]:
    """Allow a call unless its argument is one of these."""
    tests = ((_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values))
    return _only_for(number, (_LOAD, 0, 0, argument), *tests, _ALLOWED_CALL, _REFUSED)


def _allowed_ranges(allow: Instruction) -> list[Instruction]:
    instructions: list[Instruction] = []
    for first, last in _ranges(int(entry.rpartition("=")[2]) for entry in _ALLOWED.split()):
        instructions += [(_AT_LEAST, 0, 2, first), (_AT_LEAST, 1, 0, last + 1), allow]
    return instructions


def _ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges
