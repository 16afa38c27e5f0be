"""Weights and the families that run them.

`store` and its neighbours fetch weights and check them by digest. Each family is a module with `load(folder, options)`
that gives a synchronous model as engine/runtime.py describes it: whisper (Recognizer), llama (Thinker), piper (Talker
and VoiceBox; piper_cut prepares its graph, phonemes reads its words) and scripted (all three, without weights; tones
tells what was heard). Only the child side of an engine loads a family.
"""
