"""Log recovery outside the broker: inventory, scan, fold, plan, apply."""
