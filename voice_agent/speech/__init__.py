"""Text on its way to the voice: the conversation, the Thinker, clauses, spoken words, the cascade, the watermark.

In: a chat history. Out: written text and sound with word times, through a sink. Knows engines only by their contract,
no turns, no media, no wire.
"""
