"""Looking: what waits, what is dead, who serves; for the lists of `/v1` and for the console.

What is computed is apart from what is read: `lookout` asks, and keeps answers for a moment; the other modules judge.
"""
