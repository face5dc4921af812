"""Whether archived logs are sound: a map over segments and a fold over partitions, and what is rebuilt.

Begin with `survey`, `segment_map` and `partition_fold`, which Spark only schedules.
"""
