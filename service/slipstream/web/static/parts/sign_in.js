// Where a sidecar asks for a key: it is exchanged for a session, and kept nowhere in the page.
import { html, useState } from "../lib/html.js";
import { signIn } from "../lib/session.js";

export function SignIn({ ended }) {
  const [key, setKey] = useState("");
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const submit = (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    signIn(key.trim()).catch((failure) => {
      setBusy(false);
      setError(failure);
    });
  };
  return html`<main class="alone">
    <form class="sign-in" onSubmit=${submit}>
      <h1>Slipstream</h1>
      ${ended && html`<p role="status">Your session has ended. Sign in again to go on where you were.</p>`}
      <label for="key">Key</label>
      <input id="key" type="password" value=${key} onInput=${(event) => setKey(event.target.value)} required autofocus
        autocomplete="current-password" placeholder="slp_…" spellcheck=${false} aria-describedby="key-help" />
      <p id="key-help" class="muted">A key of this sidecar, with the role viewer, operator, annotator or admin. It is exchanged
        for a session, and this page does not keep it. <code>slipstream key new --role viewer</code> makes one.</p>
      ${error && html`<p class="failure" role="alert">${error.message}</p>`}
      <button class="main" disabled=${busy}>Sign in</button>
    </form>
  </main>`;
}
