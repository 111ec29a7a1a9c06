"""The overflow wheel of one partition: its levels and buckets, and how far each is filed and drained."""
