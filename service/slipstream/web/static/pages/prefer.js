// Two answers to the same request, without a name: which is better?
import { get } from "../lib/api.js";
import { count } from "../lib/format.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { useCalm, useMark } from "../lib/live.js";
import { useLoad } from "../lib/load.js";
import { can, useSession } from "../lib/session.js";
import { Empty, Failure, Loading } from "../parts/basics.js";
import { useKeys } from "../parts/keys.js";
import { Figures } from "../parts/prefer/figures.js";
import { Pair } from "../parts/prefer/pair.js";
import { lastAnnotator, onMore, rememberAnnotator, today } from "../parts/prefer/today.js";
import { useVerdicts } from "../parts/prefer/verdicts.js";

const NAME = "[A-Za-z0-9._@\\-]{1,64}";
const LOOK = 15_000; // ms between two looks where there is no pair
const PAUSE = 5_000; // ms between two readings of the figures

const CHOICES = [
  { key: "1", choice: "a", text: "Answer 1", said: "answer 1 is better" },
  { key: "2", choice: "b", text: "Answer 2", said: "answer 2 is better" },
  { key: "t", choice: "tie", text: "Tie", said: "both are as good" },
  { key: "b", choice: "both_bad", text: "Both bad", said: "both are bad" },
  { key: "s", choice: "skip", text: "Skip", said: "skipped" },
];

export default function Prefer() {
  const session = useSession();
  const [annotator, setAnnotator] = useState(() => session.key || lastAnnotator());
  const [asking, setAsking] = useState(!annotator);
  const take = (name) => {
    rememberAnnotator(name);
    setAnnotator(name);
    setAsking(false);
  };
  const figures = useFigures();
  return html`<div class="row apart"><h1>Prefer</h1>${!asking && html`<${Progress} annotator=${annotator} figures=${figures} change=${() => setAsking(true)} />`}</div>
    ${asking ? html`<${Who} before=${annotator} take=${take} />` : html`<${Judging} key=${annotator} annotator=${annotator} signedIn=${session.key} figures=${figures} />`}
    ${figures && html`<${Figures} figures=${figures} />`}`;
}

function Who({ before, take }) {
  const name = useRef(null);
  useEffect(() => name.current.focus(), []);
  const submit = (event) => {
    event.preventDefault();
    take(new FormData(event.target).get("annotator").trim());
  };
  return html`<section class="panel"><h2>Who compares?</h2>
    <p>You will see two answers to the same request, and say which one is better. Your judgements are counted under a name.</p>
    <form class="filters" onSubmit=${submit}><label>Name <input ref=${name} name="annotator" defaultValue=${before} required pattern=${NAME} maxlength="64"
      title="1 to 64 letters, digits, ., _, @ or -" autocomplete="username" /></label><button class="main">Go on</button></form></section>`;
}

function useToday(annotator) {
  const [number, setNumber] = useState(() => today(annotator));
  useEffect(() => {
    setNumber(today(annotator));
    return onMore(() => setNumber(today(annotator)));
  }, [annotator]);
  return number;
}

function Progress({ annotator, figures, change }) {
  const number = useToday(annotator);
  const all = figures && figures.annotators.find((one) => one.annotator === annotator);
  return html`<p class="row muted"><span>${count(number)} judged today in this browser${all && `, ${count(all.judgements)} in all`}</span><span>as <strong>${annotator}</strong></span>
    <button class="plain" onClick=${change}>another name</button></p>`;
}

function Judging({ annotator, signedIn, figures }) {
  const verdicts = useVerdicts(annotator, signedIn);
  const { pair, held } = verdicts;
  const [reason, setReason] = useState("");
  const [diff, setDiff] = useState(false);
  useEffect(() => setReason(verdicts.reason || ""), [pair]);
  const judge = (choice) => verdicts.judge(choice, reason.trim());
  useKeys({
    ...Object.fromEntries(CHOICES.map(({ key, choice, said }) => [key, [() => judge(choice), said]])),
    u: [verdicts.undo, "undo the last one"],
    d: [() => setDiff((now) => !now), "show or hide what differs"],
  });
  return html`
    ${verdicts.error && html`<${Failure} error=${verdicts.error} again=${() => verdicts.again()} />`}
    ${pair ? html`<${Pair} key=${pair.pair_id} pair=${pair} diff=${diff} />`
      : verdicts.looking ? html`<${Loading} what="Looking for a pair" />` : !verdicts.error && html`<${NoPair} figures=${figures} again=${verdicts.again} />`}
    <div class="verdicts">
      <div class="row" role="group" aria-label="Which is better?">${CHOICES.map(({ key, choice, text, said }) => html`
        <button key=${key} class=${choice === "a" || choice === "b" ? "main" : ""} disabled=${!pair} title=${said} onClick=${() => judge(choice)}>${text} <kbd>${key}</kbd></button>`)}
        <label class="check"><input type="checkbox" checked=${diff} onChange=${() => setDiff(!diff)} /> differences <kbd>d</kbd></label>
      </div>
      <label class="why">Why, in words (optional) <input value=${reason} maxlength="10000" disabled=${!pair} onInput=${(event) => setReason(event.target.value)}
        onKeyDown=${(event) => (event.key === "Escape" || event.key === "Enter") && event.target.blur()} autocomplete="off" /></label>
      <div class="row" role="status">${held && html`<span>${saidOf(held.choice)}</span><button onClick=${verdicts.undo}>Undo <kbd>u</kbd></button>`}</div>
    </div>`;
}

const saidOf = (choice) => `You said: ${CHOICES.find((one) => one.choice === choice).said}.`;

/** The figures of all judgements, for keys that may read them; else null. */
function useFigures() {
  const mark = useCalm(useMark("preferences"), PAUSE);
  const may = can("read");
  const found = useLoad((signal) => (may ? get("preferences", { signal }) : Promise.resolve(null)), [mark]);
  return found.data;
}

/** Why there is none, and what to do. It looks again by itself. */
function NoPair({ figures, again }) {
  useEffect(() => {
    const timer = setInterval(() => document.hidden || again({ quiet: true }), LOOK);
    return () => clearInterval(timer);
  }, []);
  const none = figures && figures.pairs.made === figures.pairs.identical;
  return html`<${Empty} title=${none ? "There is nothing to compare yet" : "There is no pair for you now"}>
    ${none ? html`<p>A pair is made of a call that the policy answered too: production's answer and a run's, or two runs of one group.
        There is none yet whose answers differ. Have calls selected, and runs made of them.</p>`
      : html`<p>You have judged all that there are, or others are judging the rest. New pairs come as more calls are run.</p>
        <p>Where a second opinion is wanted on each pair, <code>preferences.judgements</code> says from how many annotators.</p>`}
    <p><button onClick=${() => again()}>Look again</button></p><//>`;
}
