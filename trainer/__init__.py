"""Fine-tune a language model once, exactly as permitted, and hand back the evidence."""
