"""Archives on a Spark cluster: Spark schedules, `recovery.archive` does the work. Only this package imports pyspark."""
