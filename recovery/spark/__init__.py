"""Archives on a Spark cluster: Spark schedules, `recovery.archive` does the work. Only here is pyspark imported."""
