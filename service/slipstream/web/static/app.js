// The frame of the page: who is signed in, the way to each page, the state of the sidecar on each of them.
import { answering, standsIn } from "./lib/answering.js";
import { html, render, useEffect, useRef, useState } from "./lib/html.js";
import { useLive } from "./lib/live.js";
import { go, link, useRoute } from "./lib/router.js";
import { can, refresh, signOut, useSession } from "./lib/session.js";
import { nextTheme, useTheme } from "./lib/theme.js";
import { Failure, Loading, Notices } from "./parts/basics.js";
import { Keys } from "./parts/keys.js";
import { SignIn } from "./parts/sign_in.js";

// `key`: typed after g. `may`: who sees it.
const PAGES = [
  { name: "now", title: "Now", key: "n", may: "read" },
  { name: "tasks", title: "Tasks", key: "t", may: "read" },
  { name: "learning", title: "Learning", key: "l", may: "read" },
  { name: "versions", title: "Versions", key: "v", may: "read" },
  { name: "prefer", title: "Prefer", key: "p", may: "annotate" },
  { name: "data", title: "Data", key: "d", may: "read" },
  { name: "audit", title: "Audit", key: "a", may: "admin" },
  { name: "settings", title: "Settings", key: "s", may: "admin" },
];

// Pages that are reached from another one, which stays marked in the navigation.
const BELOW = { calls: "tasks", rollouts: "versions", experiments: "versions", evaluations: "versions" };

function App() {
  const session = useSession();
  const [failure, setFailure] = useState(null);
  const start = () => {
    setFailure(null);
    refresh().catch(setFailure);
  };
  useEffect(start, []);
  if (failure) return html`<main class="alone"><${Failure} error=${failure} again=${start} /></main>`;
  if (!session) return html`<main class="alone"><${Loading} /></main>`;
  if (!session.signed_in) return html`<${SignIn} ended=${session.ended} />`;
  return html`<${Frame} session=${session} />`;
}

function Frame({ session }) {
  const route = useRoute();
  const pages = PAGES.filter((page) => can(page.may));
  const shown = pages.find((page) => page.name === (BELOW[route.page] || route.page));
  const main = useRef(null);
  const place = `${route.page}/${route.parts.join("/")}`;
  const first = useRef(place);
  useEffect(() => {
    // a reader of the screen hears the new page, as after a load; not at the first one
    if (place !== first.current && main.current) main.current.focus();
    first.current = null;
  }, [place]);
  useEffect(() => {
    document.title = shown ? `${shown.title} – Slipstream` : "Slipstream";
  }, [shown]);
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>Skip to the content</a>
    <header class="top">
      <a class="brand" href=${link(pages[0] ? pages[0].name : "now")}>Slipstream</a>
      <nav aria-label="Pages">
        ${pages.map((page) => html`
          <a key=${page.name} href=${link(page.name)} title=${`${page.title} (g ${page.key})`}
             aria-current=${shown === page ? "page" : undefined}>${page.title}</a>`)}
      </nav>
      <${State} />
      <${Who} session=${session} />
    </header>
    <main id="main" ref=${main} tabindex="-1">
      ${shown ? html`<${Page} key=${route.page} name=${route.page} route=${route} />`
        : html`<${NoPage} pages=${pages} />`}
    </main>
    <${Notices} />
    <${Keys} pages=${pages} />`;
}

// Pages are loaded when they are first shown.
function Page({ name, route }) {
  const [page, setPage] = useState(null);
  const [failure, setFailure] = useState(null);
  useEffect(() => {
    import(`./pages/${name}.js`).then((module) => setPage(() => module.default), setFailure);
  }, [name]);
  if (failure) return html`<${Failure} error=${new Error("This page could not be loaded.")} again=${() => location.reload()} />`;
  return page ? html`<${page} route=${route} />` : html`<${Loading} />`;
}

function NoPage({ pages }) {
  return html`<section class="empty"><h1>Nothing to see here</h1>
    <p>There is no such page, or your key may not see it.
      ${pages[0] && html` Go on to <a href=${link(pages[0].name)}>${pages[0].title}</a>.`}</p></section>`;
}

/** What concerns every page: is the stream of news there, and who answers users. */
function State() {
  const { connected, status, serving, unavailable } = useLive();
  if (!can("read")) return null;
  const worst = status && status.problems.some((problem) => problem.severity === "error");
  const number = status ? status.problems.length : 0;
  const live = connected && unavailable === null;
  return html`<div class="state">
    ${serving && serving.killed && html`<a class="badge bad" href=${link("now")}>killed: production answers everybody</a>`}
    ${serving && answering(serving) > 0 && html`
      <a class="badge note" href=${link("versions")}>version ${serving.version} answers ${Math.round(answering(serving) * 100)} %</a>`}
    ${serving && standsIn(serving) && html`
      <a class="badge warn" href=${link("now")} title=${serving.reason}>production answers everybody: the lane is not ready</a>`}
    ${number > 0 && html`<a class=${`badge ${worst ? "bad" : "warn"}`} href=${link("now")}>${number} ${number === 1 ? "problem" : "problems"}</a>`}
    ${unavailable !== null && html`<span class="badge bad">not live: ${unavailable}</span>`}
    <span class=${`dot ${live ? "good" : "off"}`} role="img" title=${live ? "live" : `not live: ${unavailable || "the sidecar does not answer"}`}
      aria-label=${live ? "live" : "not live"}></span>
  </div>`;
}

function Who({ session }) {
  const [theme, setTheme] = useTheme();
  return html`<div class="who">
    ${session.keys_needed && html`<span class="muted" title=${`roles: ${session.roles.join(", ")}`}>${session.key}${session.tenant && ` (${session.tenant})`}</span>`}
    <button class="plain" onClick=${() => setTheme(nextTheme(theme))} title="Colours: as the system, light, dark">${theme}</button>
    ${session.keys_needed && html`<button class="plain" onClick=${() => signOut().then(() => go(link("now")))}>Sign out</button>`}
  </div>`;
}

render(html`<${App} />`, document.body);
