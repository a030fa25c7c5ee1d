"""Which keys a status shows as hot."""

from __future__ import annotations

from pipeline.runtime.driver.status.hot_key_status import hot_keys_of, sentence


def test_the_hottest_of_all_steps_come_first_whatever_their_share_of_a_quiet_subtask() -> None:
    found = hot_keys_of(
        {
            "quiet[0]": {"recordsInPerSecond": 10.0, "hotKeys": [("'a'", 0.9)]},
            "busy[1]": {"recordsInPerSecond": 1000.0, "hotKeys": [("'b'", 0.5), (None, 0.1)]},
            "other[0]": {"recordsInPerSecond": 9000.0},
        }
    )
    assert found == [
        {"subtask": "busy[1]", "key": "'b'", "share": 0.5},
        {"subtask": "busy[1]", "key": None, "share": 0.1},
        {"subtask": "quiet[0]", "key": "'a'", "share": 0.9},
    ]
    assert [sentence(row) for row in found] == [
        "key 'b' has 50% of the records of busy[1]",
        "one key has 10% of the records of busy[1]",
        "key 'a' has 90% of the records of quiet[0]",
    ]


def test_of_very_many_the_hottest_twenty_are_shown() -> None:
    subtasks = {f"a[{n}]": {"recordsInPerSecond": float(n), "hotKeys": [(str(n), 0.5)]} for n in range(1, 100)}
    assert [row["key"] for row in hot_keys_of(subtasks)] == [str(n) for n in range(99, 79, -1)]
