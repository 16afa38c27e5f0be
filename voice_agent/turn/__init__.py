"""Turn-taking as pure decisions: no await, no I/O, no arrays.

In go voice probabilities by window of sound, verdicts of the models and wishes of the client; out come edges
(`endpoint`), actions (`machine`), verdicts over an interruption (`barge_in`) and what was heard (`heard`).
The session owns these objects and carries out what they say.
"""
