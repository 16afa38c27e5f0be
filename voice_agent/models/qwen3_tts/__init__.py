"""Qwen3-TTS at 12.5 frames a second in plain PyTorch: Talker, Code Predictor and codec.

The readable reference: everything faster is tested against it. State is always an argument (KV arenas, codec state,
penalty marks), so one set of weights serves any number of streams and a step can be captured into a CUDA graph.
    prompt ids -> `talker` -> code 0 -> `code_predictor` -> 16 codes -> `codec` -> 1,920 samples at 24 kHz
Read in this order: config, weights, transformer, talker, code_predictor, sampling, codec, prompt, speak.
Knows no request, no scheduler and no audio device. Needs torch, so only engine children import it.
"""
