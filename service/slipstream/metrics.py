"""Metrics of the training side; `proxy/metrics.py` has the proxy's own. All begin with `slipstream_`."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from slipstream.usage import Kind, Tokens, TokenTally


class Metrics:
    """The training side's metrics, on one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.captured = Counter("slipstream_calls_captured", "Calls written to the store", registry=registry)
        self.not_captured = Counter(
            "slipstream_calls_not_captured", "Calls seen and not stored, by reason", ["reason"], registry=registry
        )
        self.header_problems = Counter(
            "slipstream_header_problems", "x-slipstream-* headers ignored, by problem", ["problem"], registry=registry
        )
        self.dropped = Counter(
            "slipstream_dropped", "Work dropped because something was full, by cause", ["cause"], registry=registry
        )
        self.capture_queue = Gauge("slipstream_capture_queue", "Calls waiting to be stored", registry=registry)
        self.store_bytes = Gauge("slipstream_store_bytes", "Bytes of the store in use", registry=registry)
        self.decisions = Counter(
            "slipstream_selection_decisions",
            "Tasks decided, by result and reason",
            ["selected", "reason"],
            registry=registry,
        )
        self.runs = Counter("slipstream_runs", "Runs that reached a state", ["state"], registry=registry)
        self.run_retries = Counter("slipstream_run_retries", "Policy calls to be tried again", registry=registry)
        self.runs_waiting = Gauge("slipstream_runs_waiting", "Runs that are not answered yet", registry=registry)
        self.runs_active = Gauge("slipstream_runs_active", "Policy calls on their way", registry=registry)
        self.replays = Counter(
            "slipstream_replays", "Runs of agent replays opened, and expired", ["state"], registry=registry
        )
        self.replays_open = Gauge("slipstream_replays_open", "Runs of agent replays that are open", registry=registry)
        self.replay_calls = Counter(
            "slipstream_replay_calls", "Policy calls of agent replays, whole or too late", ["state"], registry=registry
        )
        self.budget = Gauge(
            "slipstream_budget",
            "What may be spent within an hour, by purpose and kind",
            ["purpose", "kind"],
            registry=registry,
        )
        self.budget_spent = Gauge(
            "slipstream_budget_spent",
            "What was spent within the last hour, by purpose and kind",
            ["purpose", "kind"],
            registry=registry,
        )
        self.rewards = Histogram(
            "slipstream_reward",
            "Rewards given to runs",
            buckets=[i / 10 for i in range(11)],
            registry=registry,
        )
        self.rewards_clipped = Counter(
            "slipstream_rewards_clipped", "Rewards outside rewards.clip, cut to it", registry=registry
        )
        self.reward_errors = Counter("slipstream_reward_errors", "Times a calculator failed", registry=registry)
        self.quarantined = Gauge(
            "slipstream_quarantined",
            "Rows set apart because the training side died of them",
            ["kind"],
            registry=registry,
        )
        self.parse_bytes = Gauge(
            "slipstream_parse_bytes", "Bytes reserved for JSON that is read, by share", ["share"], registry=registry
        )
        self.parse_waiting = Gauge(
            "slipstream_parse_waiting",
            "Readers of JSON that wait for memory, by share",
            ["share"],
            registry=registry,
        )
        self.parse_refused = Counter(
            "slipstream_parse_refused", "Requests refused because no memory was left to read them", registry=registry
        )
        self.feedback = Counter("slipstream_feedback", "Feedback taken", registry=registry)
        self.feedback_refused = Counter(
            "slipstream_feedback_refused", "Feedback beyond feedback.per_key.rate", registry=registry
        )
        self.preferences = Counter(
            "slipstream_preferences", "Judgements of pairs of answers, by choice", ["choice"], registry=registry
        )
        self.feedback_keys = Gauge(
            "slipstream_feedback_keys",
            "Keys that give feedback, beside the others",
            ["state"],
            registry=registry,
        )
        self.facade_answers = Counter(
            "slipstream_facade_answers", "Answers of the policy to clients of the facade", ["state"], registry=registry
        )
        self.facade_retries = Counter(
            "slipstream_facade_retries", "Chats of the facade that were tried again", registry=registry
        )
        self.facade_feedback = Counter(
            "slipstream_facade_feedback", "Answers that feedback of the facade named", ["result"], registry=registry
        )
        self.commits = Counter("slipstream_commits", "Deliveries ended, by state", ["state"], registry=registry)
        for state in ("delivered", "lost", "failed", "error"):
            self.commits.labels(state)  # of a series that begins above 0, increase() does not see the first one
        self.groups = Counter(
            "slipstream_groups", "Groups that left the store, by outcome", ["outcome"], registry=registry
        )
        for outcome in ("delivered", "run_again", "dropped", "lost", "repaired", "expired", "erased"):
            self.groups.labels(outcome)
        self.experiences = Counter("slipstream_experiences_delivered", "Experiences delivered", registry=registry)
        self.experiences_ready = Gauge(
            "slipstream_experiences_ready", "Experiences waiting for the next commit", registry=registry
        )
        self.policy_version = Gauge(
            "slipstream_policy_version", "The version that the Explorer serves", registry=registry
        )
        self.serving_share = Gauge(
            "slipstream_serving_share", "Share of the users that a version answers", registry=registry
        )
        self.serving_version = Gauge("slipstream_serving_version", "The version of that share", registry=registry)
        self.serving_ready = Gauge("slipstream_serving_ready", "1 when users may go to the lane", registry=registry)
        self.serving_killed = Gauge(
            "slipstream_serving_killed", "1 after a kill, until it is revived", registry=registry
        )
        self.versions = Gauge("slipstream_versions", "Versions of the policy, by state", ["state"], registry=registry)
        self.explorer_up = Gauge("slipstream_explorer_up", "1 when the Explorer answers", registry=registry)
        self.keys = Gauge("slipstream_keys", "API keys, by whether they expire", ["state"], registry=registry)
        self.tasks = Gauge("slipstream_training_tasks", "Tasks of asyncio that live", registry=registry)
        self.problems = Gauge(
            "slipstream_problems", "1 where the sidecar sees this problem now", ["code"], registry=registry
        )
        self.rollouts = Gauge("slipstream_rollouts", "Rollouts in each state", ["state"], registry=registry)
        self.rollout_share = Gauge(
            "slipstream_rollout_share", "Share of the units that is assigned to a version", registry=registry
        )
        self.rollout_evidence = Gauge(
            "slipstream_rollout_log_e",
            "Logarithm of the evidence for harm by each guardrail, and for better by the objective",
            ["measure"],
            registry=registry,
        )
        self.rollout_decisions = Counter(
            "slipstream_rollout_decisions", "Decisions that this sidecar made or carried out", ["action"],
            registry=registry,
        )  # fmt: skip
        actions = "open", "begin", "advance", "hold", "pause", "resume", "promote", "roll_back", "abort", "replace"
        for action in actions:
            self.rollout_decisions.labels(action)
        self.event_streams = Gauge(
            "slipstream_event_streams", "Streams of GET /events that are open", registry=registry
        )
        self.experiments = Gauge("slipstream_experiments", "Experiments in each state", ["state"], registry=registry)
        self.experiment_share = Gauge(
            "slipstream_experiment_share", "Share of the units that is assigned to arm b", registry=registry
        )
        self.experiment_units = Gauge(
            "slipstream_experiment_units", "Counted units of each arm", ["arm"], registry=registry
        )
        self.experiment_mean = Gauge(
            "slipstream_experiment_mean", "Mean of a metric, in parts of its range", ["arm", "metric"],
            registry=registry,
        )  # fmt: skip
        self.experiment_evidence = Gauge(
            "slipstream_experiment_log_e", "Logarithm of the evidence that this arm is better", ["arm"],
            registry=registry,
        )  # fmt: skip
        self.experiment_decisions = Counter(
            "slipstream_experiment_decisions", "Decisions that this sidecar made or carried out", ["action"],
            registry=registry,
        )  # fmt: skip
        for action in ("start", "begin", "settle", "decide", "inconclude", "stop", "fail", "switch"):
            self.experiment_decisions.labels(action)
        self.live_scores = Counter(
            "slipstream_live_scores", "Live answers by how their score went", ["outcome"], registry=registry
        )
        for outcome in ("scored", "no_basis", "failed", "over_budget"):
            self.live_scores.labels(outcome)
        self.evaluations = Counter(
            "slipstream_evaluations", "Evaluations that ended here, by state", ["state"], registry=registry
        )
        for state in ("done", "changed", "failed"):
            self.evaluations.labels(state)
        self.evaluation_answers = Counter(
            "slipstream_evaluation_answers", "Answers to cases, by how they came to a value", ["outcome"],
            registry=registry,
        )  # fmt: skip
        for outcome in ("scored", "failed", "unscored", "no_basis", "away", "gone"):
            self.evaluation_answers.labels(outcome)
        self.evaluation_open_seconds = Gauge(
            "slipstream_evaluation_open_seconds", "Age of the oldest evaluation that has not ended", registry=registry
        )
        self.version_verdict = Gauge(
            "slipstream_version_verdict", "1 for the verdict of the version that serves there", ["place", "verdict"],
            registry=registry,
        )  # fmt: skip
        self.webhook_deliveries = Counter(
            "slipstream_webhook_deliveries", "Events by how telling a receiver of them went", ["receiver", "outcome"],
            registry=registry,
        )  # fmt: skip
        self.webhook_waiting = Gauge(
            "slipstream_webhook_waiting", "Events that a receiver has not got yet", ["receiver"], registry=registry
        )
        self.webhook_oldest = Gauge(
            "slipstream_webhook_oldest_seconds", "Age of the oldest of them", ["receiver"], registry=registry
        )
        self._tokens = Counter(
            "slipstream_tokens", "Tokens of answers, by what they were asked for", ["kind", "direction"],
            registry=registry,
        )  # fmt: skip
        for kind in Kind:
            for direction in ("input", "output"):
                self._tokens.labels(kind, direction)
        self.tokens = TokenTally(self._count_tokens)
        self.spans = Counter("slipstream_spans", "Spans by what became of them", ["outcome"], registry=registry)
        for outcome in ("exported", "failed", "dropped"):
            self.spans.labels(outcome)
        self.explorer_restarts = Counter(
            "slipstream_explorer_restarts", "Times the Explorer's counters went back", registry=registry
        )

    def _count_tokens(self, kind: Kind, tokens: Tokens) -> None:
        self._tokens.labels(kind, "input").inc(tokens.input)
        self._tokens.labels(kind, "output").inc(tokens.output)
