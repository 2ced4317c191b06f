"""What long-running processes write on stderr: each event once, and what repeats with a count."""

import io
import json
import logging

import pytest

from service.logs import REPEATED_S, CountingHandler, JsonLines, TextLines


class Lines:
    """A logger over a stream, and its clock."""

    def __init__(self, formatter):
        self.now = 0.0
        self.stream = io.StringIO()
        self.handler = CountingHandler(self.stream, clock=lambda: self.now)
        self.handler.setFormatter(formatter)
        self.log = logging.Logger("service.test")
        self.log.addHandler(self.handler)

    @property
    def written(self):
        return self.stream.getvalue().splitlines()


@pytest.fixture
def lines():
    return Lines(TextLines())


def test_a_warning_that_repeats_is_written_once_a_period_with_a_count(lines):
    for second in range(100):  # as in an outage of the database
        lines.now = second
        lines.log.warning("the store does not answer: %s", "refused")
    assert len(lines.written) == 1 + int(99 // REPEATED_S)
    assert "repeated" not in lines.written[0]
    assert [line.rpartition("repeated=")[2] for line in lines.written[1:]] == ["29", "30", "30"]
    assert all("the store does not answer: refused" in line for line in lines.written)


def test_the_rest_is_told_with_the_next_line_whatever_that_says(lines):
    for _ in range(3):
        lines.log.error("unavailable")
    lines.now = REPEATED_S
    lines.log.info("job begins")
    assert [line[25:].strip() for line in lines.written] == [
        "error   unavailable",
        "error   unavailable repeated=2",
        "info    job begins",
    ]
    lines.now = 3 * REPEATED_S
    lines.log.error("unavailable")
    assert lines.written[-1].endswith("unavailable")


def test_the_rest_is_told_at_the_end(lines):
    for _ in range(3):
        lines.log.error("unavailable")
    lines.handler.close()
    assert lines.written[-1].endswith("repeated=2")


def test_what_differs_is_written_and_so_is_all_that_is_no_warning(lines):
    for job in (1, 2):
        lines.log.error("job failed", extra={"job": job})
        lines.log.warning("job failed", extra={"job": job})
        lines.log.info("job begins")
    assert len(lines.written) == 6


def test_requests_that_fail_for_one_reason_are_one_warning(lines):
    for number in range(5):
        lines.log.error("unavailable", extra={"request_id": f"r{number}", "took_ms": number})
    assert len(lines.written) == 1


def test_the_count_is_a_value_in_json():
    lines = Lines(JsonLines())
    for _ in range(4):
        lines.log.warning("again")
    lines.handler.close()
    assert [json.loads(line).get("repeated") for line in lines.written] == [None, 3]


def test_texts_that_never_repeat_take_no_more_memory_than_a_bound(lines):
    for number in range(5000):
        lines.log.warning("text %d", number)
    assert len(lines.written) == 5000
    assert len(lines.handler._known) <= 1000


def test_a_text_that_does_not_fit_its_values_raises_nothing_where_it_is_logged(lines, capsys):
    lines.log.warning("bad %d", "x")
    assert "TypeError" in capsys.readouterr().err
    lines.log.warning("the next one")
    assert lines.written[-1].endswith("the next one")
