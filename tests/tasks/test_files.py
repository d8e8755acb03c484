import gzip
import json

import pytest

from forethought.core.errors import RecipeError
from forethought.tasks.files import file_problems


def written(tmp_path, text, name="mine.jsonl"):
    path = tmp_path / name
    path.write_bytes(
        gzip.compress(text.encode()) if name.lower().endswith(".gz") else text.encode()
    )
    return path


@pytest.mark.parametrize("name", ["mine.jsonl", "mine.jsonl.gz", "mine.jsonl.GZ"])
def test_rows_become_problems_with_what_is_missing_filled_in(tmp_path, name):
    rows = [
        {"prompt": "6 * 7?", "answer": 42},
        {"id": "b", "prompt": "day?", "answer": "mon", "domain": "days", "plan": "look."},
    ]
    path = written(tmp_path, "\n\n".join(map(json.dumps, rows)), name)
    first, second = file_problems(path)
    assert (first.id, first.prompt, first.answer) == ("mine-1", "6 * 7?", "42")
    assert (first.domain, first.data) == ("general", {})
    assert (second.id, second.domain, second.data) == ("b", "days", {"plan": "look."})


@pytest.mark.parametrize("name", ["mine.json", "mine.json.gz"])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_file_that_is_one_list_has_its_elements_for_rows(tmp_path, name, indent):
    rows = [{"prompt": "6 * 7?", "answer": 42}, {"prompt": "day?", "answer": "mon"}]
    found = file_problems(written(tmp_path, "\n" + json.dumps(rows, indent=indent), name))
    assert [(one.id, one.prompt) for one in found] == [("mine-1", "6 * 7?"), ("mine-2", "day?")]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[]", "holds no rows"),
        ('[{"prompt": "q", "answer": "1"}, 7]', "row 2: needs a JSON object, got 7"),
        ('\n[\n{"prompt": "q"\n', r"read as one list.*not JSON.*line 4"),
        ('[{"prompt": "q", "answer": "\\ud800"}]', "row 1: holds half of a surrogate pair"),
        ("[" * 50_000, "nested deeper than 50"),
        ("[" * 60 + "]" * 60, "row 1: nested deeper than 50"),
    ],
)
def test_what_is_wrong_in_a_list_is_named(tmp_path, text, complaint):
    with pytest.raises(RecipeError, match=rf"mine\.json.*{complaint}"):
        file_problems(written(tmp_path, text, "mine.json"))


def test_a_line_separator_inside_a_string_does_not_end_the_row(tmp_path):
    row = json.dumps({"prompt": "one\u2028two", "answer": "3"}, ensure_ascii=False)
    (problem,) = file_problems(written(tmp_path, row + "\r\n"))
    assert problem.prompt == "one\u2028two"


def test_a_byte_order_mark_is_not_part_of_the_first_row(tmp_path):
    assert len(file_problems(written(tmp_path, '\ufeff{"prompt": "q", "answer": "a"}'))) == 1


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("{", "not JSON"),
        ("[1]", "needs a JSON object"),
        ('{"answer": "1"}', "'prompt' must be text, got nothing"),
        ('{"prompt": "q"}', "'answer' must be text, got nothing"),
        ('{"prompt": "q", "answer": true}', "'answer' must be text, got true"),
        ('{"prompt": "q", "answer": "1", "domain": 3}', "'domain' must be text, got 3"),
        ('{"prompt": " ", "answer": "1"}', "'prompt' must be text"),
        ('{"prompt": "\\ud800", "answer": "1"}', "half of a surrogate pair"),
        ('{"prompt": "q", "answer": NaN}', "'answer' is nan: give a finite number"),
        ('{"prompt": "q", "answer": -Infinity}', "'answer' is -inf"),
        (
            '{"prompt": "q", "answer": "1", "x": ' + "[" * 50 + "1" + "]" * 50 + "}",
            "nested deeper than",
        ),
        ("[" * 50_000, "nested deeper than 50"),
        ('{"id": "mine-1", "prompt": "q", "answer": "1"}', "the id 'mine-1' is taken"),
    ],
)
def test_a_bad_row_is_named_with_its_file_and_number(tmp_path, row, complaint):
    path = written(tmp_path, '{"prompt": "q", "answer": "1"}\n\n' + row + "\n")
    with pytest.raises(RecipeError) as caught:
        file_problems(path)
    assert f"{path}, row 3" in str(caught.value)
    assert complaint in str(caught.value)


def test_bytes_that_are_not_text_are_a_bad_row(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_bytes(b'{"prompt": "\xff", "answer": "1"}\n')
    with pytest.raises(RecipeError, match="row 1: not JSON"):
        file_problems(path)


def test_a_row_may_be_nested_fifty_deep(tmp_path):
    row = '{"prompt": "q", "answer": "1", "x": ' + "[" * 49 + "1" + "]" * 49 + "}"
    assert len(file_problems(written(tmp_path, row))) == 1


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda path: None, "is no file"),
        (lambda path: path.mkdir(), "is no file"),
        (lambda path: path.write_bytes(b""), "holds no rows"),
        (lambda path: path.write_bytes(b" \n\n"), "holds no rows"),
    ],
)
def test_a_file_without_problems_is_an_error_that_names_it(tmp_path, make, complaint):
    path = tmp_path / "mine.jsonl"
    make(path)
    with pytest.raises(RecipeError, match=complaint) as caught:
        file_problems(path)
    assert str(path) in str(caught.value)


def test_a_name_that_no_file_can_have_is_refused(tmp_path):
    with pytest.raises(RecipeError, match=r"cannot be read .*File name too long.*readable file"):
        file_problems(tmp_path / ("n" * 300))


@pytest.mark.parametrize(
    "content", [b"plain", gzip.compress(b"{}" * 999, mtime=0)[:-9], b"\x1f\x8b\x08\x00"]
)
def test_a_damaged_archive_is_an_error_that_names_it(tmp_path, content):
    path = tmp_path / "mine.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(RecipeError, match=r"mine\.jsonl\.gz"):
        file_problems(path)
