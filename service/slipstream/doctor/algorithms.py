"""Trinity-RFT 0.6.0's algorithms in serve mode, as observed with its real code."""

COMPARING = frozenset({
    "grpo", "dapo", "cispo", "gspo", "sapo", "multi_step_grpo", "gigpo", "opmd", "sppo", "asymre", "rloo", "grpo_verl",
    "mix", "mix_chord", "rec",
})  # fmt: skip
"""Compare the runs of a group with each other."""

SINGLE = frozenset({"ppo", "reinforceplusplus", "topr"})
"""Take each run by itself."""

REFUSED = frozenset({"raft", "sft", "dpo", "cpt"})
"""Serve mode does not start with these."""

TEACHER = frozenset({"jsd", "on_policy_distill"})
"""Accepted, but they need a teacher's logprobs, which serve mode does not record."""

UNTRIED = frozenset({"mix", "mix_chord"})
"""Advantages work; whether the Trainer's mixing does was not tried."""

WITH_REFERENCE = frozenset({
    "ppo", "grpo", "reinforceplusplus", "rloo", "opmd", "topr", "cispo", "gspo", "sapo", "rec", "multi_step_grpo",
    "gigpo", "grpo_verl", "mix", "mix_chord",
})  # fmt: skip
"""Ask for a reference model, which the Trainer builds only where there is a KL loss."""

KNOWN = COMPARING | SINGLE | REFUSED | TEACHER
