"""What tests of programs that use tarry, and tarry's own, stand on."""

from tarry.testing.proxy import PRODUCE, Fault, KafkaProxy, Side

__all__ = ["PRODUCE", "Fault", "KafkaProxy", "Side"]
