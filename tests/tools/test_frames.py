"""The wires of the sandbox: whatever is packed is unpacked, in whatever pieces it arrives."""

from hypothesis import given
from hypothesis import strategies as st

from forethought.tools.sandbox.inside.frames import (
    HALF,
    Ask,
    End,
    Report,
    Request,
    State,
    take_report,
    take_request,
)
from forethought.tools.sandbox.inside.output import Capture

requests = st.builds(
    Request,
    st.sampled_from(Ask),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=50),
    st.binary(max_size=50),
)
reports = st.builds(
    Report,
    call=st.integers(0, 2**32 - 1),
    end=st.sampled_from(End),
    state=st.sampled_from((State.KEPT, State.FRESH, State.FRESH | State.LOST)),
    status=st.integers(0, 2**31 - 1),
    seconds=st.floats(0, 1e6),
    cpu=st.floats(0, 1e6),
    out_bytes=st.integers(0, 2**64 - 1),
    err_bytes=st.integers(0, 2**64 - 1),
    out=st.binary(max_size=50),
    err=st.binary(max_size=50),
)


def in_pieces(data, take, size):
    buffer, taken = bytearray(), []
    for start in range(0, len(data), size):
        buffer += data[start : start + size]
        while (message := take(buffer)) is not None:
            taken.append(message)
    assert not buffer
    return taken


@given(st.lists(requests, max_size=4), st.integers(1, 70))
def test_requests_survive_the_wire(messages, size):
    data = b"".join(message.pack() for message in messages)
    assert in_pieces(data, take_request, size) == messages


@given(st.lists(reports, max_size=4), st.integers(1, 70))
def test_reports_survive_the_wire(messages, size):
    data = b"".join(message.pack() for message in messages)
    assert in_pieces(data, take_report, size) == messages


@given(st.lists(st.integers(0, 2 * HALF), max_size=8))
def test_a_capture_keeps_both_ends_and_counts_everything(sizes):
    capture, whole = Capture(), b""
    for number, size in enumerate(sizes):
        data = bytes([number]) * size
        capture.add(data)
        whole += data
    expected = whole if len(whole) <= 2 * HALF else whole[:HALF] + whole[-HALF:]
    assert (capture.kept, capture.total) == (expected, len(whole))
