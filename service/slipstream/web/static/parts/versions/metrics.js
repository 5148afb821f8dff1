// The figures of a training step, by the Trainer's own names.
import { count, decimal, percent, seconds } from "../../lib/format.js";

const fine = (value) => (value === null || value === undefined ? "–" : Math.abs(value) < 0.001 && value !== 0 ? value.toExponential(1) : decimal(value, 4));

export const METRICS = [
  { name: "reward_mean", title: "Reward, mean of its experiences", format: (value) => decimal(value, 3), help: "of what it was trained on" },
  { name: "reward_std", title: "Reward, standard deviation", format: (value) => decimal(value, 3), help: "of what it was trained on" },
  { name: "kl_to_sampling", title: "KL to the sampling policy", chart: "KL", format: fine, help: "nats a token, before the update: what staleness and different arithmetic add up to" },
  { name: "entropy", title: "Entropy", chart: "Entropy", format: (value) => decimal(value, 3), help: "nats a token; near 0 the policy says one thing only" },
  { name: "clip_fraction", title: "Clipped", chart: "Clip fraction", format: (value) => percent(value, 1), help: "part of the tokens whose ratio was clipped" },
  { name: "loss", title: "Loss", format: fine, help: "before the update" },
  { name: "policy_loss", title: "Loss of its experiences", format: fine, help: "in a step with rows of a data set" },
  { name: "sft_loss", title: "Loss of its rows", format: fine, help: "nats a token of the answers that a data set teaches in the same step" },
  { name: "rows", title: "Rows of the data set", format: count, help: "of the step" },
  { name: "row_tokens", title: "Tokens of their answers", format: count, help: "of all rows of the step" },
  { name: "grad_norm", title: "Gradient norm", chart: "Gradient norm", format: (value) => decimal(value, 3), help: "before it is clipped" },
  { name: "tokens", title: "Tokens of its answers", format: count, help: "of all experiences of the step" },
  { name: "seconds", title: "Time of the gradient", chart: "Time a step", format: seconds, help: "of the step" },
];
