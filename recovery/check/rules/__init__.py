"""What is checked: functions of arrays of batches, and of summaries of segments that follow one another. No I/O."""
