"""The overflow wheel of one partition: levels, buckets (slots), and how far each of them is filed and drained."""
