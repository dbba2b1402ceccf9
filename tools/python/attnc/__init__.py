"""attnc: an attention compiler. `attnc.torch` has FlexAttention's interface, and needs torch."""
