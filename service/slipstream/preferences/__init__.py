"""Human preference: pairs of answers that are shown blind, and what their judgements say."""
