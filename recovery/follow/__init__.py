"""Somebody else's recovery, a broker's or this tool's, as events for the observers that there are.

Begin with `source`: what is watched. `broker_log` watches a log: `log_feed` gives bytes, as they come, `log_layout`
what a line holds, `broker_lines` what that says of a load, `broker_load` events; `unflushed` knows the log dirs.
`gauge_source` watches gauges: `endpoint` gets them over HTTP, `gauge_reading` is what they say at one moment,
`gauge_load` makes events of that. `api` is the library call.
"""
