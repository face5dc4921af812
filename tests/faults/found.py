"""The cases that failed once: each is run in every suite for ever."""

FOUND = (
    (
        "shrinking",
        "overflowed segment",
        "cut-after@82:7",
        "cut between the look at its size and the mapping of it",
    ),
    (
        "faults",
        "log start beyond the end",
        "EIO@80",
        "a checkpoint that could not be looked at was taken for missing",
    ),
    ("faults", "torn with transactions", "EIO@285", "a descriptor's number was named for the manifest"),
    (
        "faults",
        "interrupted compaction",
        "EIO@266",
        "a new journal that could not be looked at was left behind",
    ),
    ("faults", "log start beyond the end", "EACCES@113", "a refused folder did not say which file it was"),
    (
        "faults",
        "clean, one of two is damaged",
        "EACCES@153",
        "what is left of a clean log dir is loaded as unclean by the next run",
    ),
    (
        "undo-faults",
        "three partitions",
        "EIO@591",
        "an undo that had begun to remove its quarantine was done again, from what was left of it",
    ),
    ("undo-faults", "three partitions", "EACCES+@604", "the same"),
    (
        "undo-crashes",
        "torn first segment",
        "kill-after@336/4",
        "the journal of an undo was gone for good, and the quarantine that it had removed was not",
    ),
    (
        "faults-resumed",
        "two log dirs",
        "kill-after@378,EIO@309",
        "an interrupted log dir that could not be looked at held up the other one",
    ),
    ("faults-resumed", "two log dirs", "kill-after@778,EIO@337", "the same"),
    (
        "faults-resumed",
        "clean, one of two is damaged",
        "kill-after@531,EIO+@421",
        "what the first run had staged of the hand-off was missed by the third one, which began anew",
    ),
    (
        "faults-resumed",
        "batches out of order",
        "kill-after@158,EIO@145",
        "a journal that was not begun to its end, and could not be removed by the next run, stayed for ever",
    ),
    ("faults-resumed", "pending deletions", "tear@172,EROFS@159", "the same"),
)
"""Kind, state, point, and what it was."""
