"""The overflow wheel of one partition: its levels and slots, and how far each slot is filed and drained."""
