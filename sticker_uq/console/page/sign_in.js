/* SPDX-License-Identifier: Apache-2.0 */
// The sign-in: the secret goes into the body of one request and comes back as a cookie that no script can read.
import { STRINGS, fill, speak } from "./strings.js";

const $ = (id) => document.getElementById(id);
const ANSWER_MS = 2000;
let waiting = false;

async function start() {
  speak($("language"));
  document.title = STRINGS.title;
  const texts = { title: STRINGS.title, "name-label": STRINGS.name, send: STRINGS.signIn };
  for (const [id, words] of Object.entries(texts)) $(id).textContent = words;
  $("sign-in").addEventListener("submit", signIn);
  const { named } = await known();
  $("name-row").hidden = !named;
  tell("");
  $("secret-label").textContent = named ? STRINGS.secret : STRINGS.token;
  (named ? $("name") : $("secret")).focus();
}

// Whether operators have names here. A stopped process does not say; it is asked again until it does.
async function known() {
  for (;;) {
    try {
      return await (await ask({})).json();
    } catch (error) {
      tell(words(error));
      await new Promise((resolve) => setTimeout(resolve, ANSWER_MS));
    }
  }
}

async function signIn(event) {
  event.preventDefault();
  if (waiting) return;
  waiting = true;
  tell(STRINGS.signIn + ": " + STRINGS.sending);
  try {
    const body = JSON.stringify({ name: $("name").value.trim(), secret: $("secret").value });
    const { ok, status } = await ask({ method: "POST", headers: { "Content-Type": "application/json" }, body });
    if (ok) { location.reload(); return; }
    tell(STRINGS.refused + (status === 401 ? STRINGS.wrongSecret : STRINGS.replies[status] || String(status)));
    $("secret").value = "";
  } catch (error) {
    tell(words(error)); // the secret stays: it was not wrong
  }
  waiting = false;
}

function ask(request) { return fetch("session", { ...request, signal: AbortSignal.timeout(ANSWER_MS) }); }

function words(error) {
  const why = error.name === "TimeoutError" ? fill(STRINGS.noReply, { seconds: ANSWER_MS / 1000 }) : STRINGS.unreachable;
  return STRINGS.signIn + ": " + STRINGS.notDone + why;
}

function tell(said) { $("message").textContent = said; }

start();
