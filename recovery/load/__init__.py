"""What Kafka's load does to one log: from what lies in its folder to the tree that the broker would leave.

Pure: opens nothing, starts no thread, logs nothing, reads no clock; bytes and scans come from a `PartitionSource`.
Begin with `fold`, which goes through Kafka's passes; `model` has what goes in and comes out.
"""
