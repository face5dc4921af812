"""The cases that failed once: each is run in every suite for ever."""

FOUND = (
    (
        "shrinking",
        "overflowed segment",
        "cut-after@82:7",
        "cut between the look at its size and the mapping of it",
    ),
)
"""Kind, state, point, and what it was."""
