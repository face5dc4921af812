"""The cases that failed once: each is run in every suite for ever.

Their calls are named, not numbered: numbers change with the code before them.
"""

FOUND = (
    (
        "shrinking",
        "overflowed segment",
        "cut-before@mmap late-0/00000000000000000035.log#1:7",
        "cut between the look at its size and the mapping of it",
    ),
    (
        "faults",
        "log start beyond the end",
        "EIO@stat d1/log-start-offset-checkpoint#1",
        "a checkpoint that could not be looked at was taken for missing",
    ),
    (
        "faults",
        "torn with transactions",
        "EIO@stat manifest.jsonl#1",
        "a descriptor's number was named for the manifest",
    ),
    (
        "faults",
        "interrupted compaction",
        "EIO@stat journal.new#1",
        "a new journal that could not be looked at was left behind",
    ),
    (
        "faults",
        "log start beyond the end",
        "EACCES@stat late-0/00000000000000000035.log#1",
        "a refused folder did not say which file it was",
    ),
    (
        "faults",
        "clean, one of two is damaged",
        "EACCES@stat transactions-0/00000000000000000000.timeindex#1",
        "what is left of a clean log dir is loaded as unclean by the next run",
    ),
    (
        "undo-faults",
        "three partitions",
        "EIO@rmdir d1.quarantine/*/late-0#1",
        "an undo that had begun to remove its quarantine was done again, from what was left of it",
    ),
    ("undo-faults", "three partitions", "EACCES+@unlink d1.quarantine/*/late-1/*#1", "the same"),
    (
        "undo-faults",
        "missing index and torn tail",
        "EIO@stat manifest.jsonl#8",
        "the manifest that could not be read was not named",
    ),
    ("undo-faults", "missing index and torn tail", "EIO@read manifest.jsonl#3", "the same"),
    ("undo-faults", "unfinished split", "EIO+@readdir d1.quarantine/*/late-0#1", "the same of a folder"),
    (
        "faults",
        "pending deletions",
        "EIO+@stat d1/.lock#3",
        "a lock file that could not be looked at stayed locked",
    ),
    (
        "faults",
        "one refused",
        "EIO@stat late-1/00000000000000000074.index#2",
        "access(2) said no, and not why",
    ),
    (
        "undo-crashes",
        "torn first segment",
        "kill-after@unlink d1.quarantine/undo#1/4",
        "the journal of an undo was gone for good, and the quarantine that it had removed was not",
    ),
    (
        "faults-resumed",
        "two log dirs",
        "kill-after@truncate d1/transactions-2/*.log#1,EIO@stat d1/log-start-offset-checkpoint#8",
        "an interrupted log dir that could not be looked at held up the other one",
    ),
    (
        "faults-resumed",
        "two log dirs",
        "kill-after@truncate d1/transactions-2/*.log#1,EIO@stat d2/log-start-offset-checkpoint#8",
        "the same",
    ),
    (
        "faults-resumed",
        "clean, one of two is damaged",
        "kill-after@mode d1/recovery-point-offset-checkpoint.recovery-tmp#1,EIO+@sync d1#1",
        "what the first run had staged of the hand-off was missed by the third one, which began anew",
    ),
    (
        "faults-resumed",
        "batches out of order",
        "kill-after@write journal.new#2,EIO@unlink journal.new#1",
        "a journal that was not begun to its end, and could not be removed by the next run, stayed for ever",
    ),
    (
        "faults-resumed",
        "pending deletions",
        "tear@write journal.new#2,EROFS@unlink journal.new#1",
        "the same",
    ),
    (
        "faults",
        "two log dirs",
        "shorten@read manifest.jsonl#1",
        "a read of the manifest's end that returned less was taken for a torn line, which was cut",
    ),
    (
        "crashes",
        "log start beyond the end",
        "kill-after@link late-0/00000000000000000064.timeindex#1/2",
        "a copy of which a power failure had left zeros was in the way of an undo for ever",
    ),
)
"""Kind, state, point, and what it was."""
