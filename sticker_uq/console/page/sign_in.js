/* SPDX-License-Identifier: Apache-2.0 */
// The sign-in: the token goes into the body of one request and comes back as a cookie that no script can read.
import { STRINGS, fill, speak } from "./strings.js";

const $ = (id) => document.getElementById(id);
const ANSWER_MS = 2000;
let waiting = false;

speak($("language"));
document.title = STRINGS.title;
for (const [id, words] of Object.entries({ title: STRINGS.title, "secret-label": STRINGS.token, send: STRINGS.signIn }))
  $(id).textContent = words;
$("sign-in").addEventListener("submit", signIn);
$("secret").focus();

async function signIn(event) {
  event.preventDefault();
  if (waiting) return;
  waiting = true;
  tell(STRINGS.signIn + ": " + STRINGS.sending);
  try {
    const body = JSON.stringify({ secret: $("secret").value });
    const { ok, status } = await fetch("session", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body,
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    if (ok) {
      location.reload();
      return;
    }
    tell(STRINGS.refused + (status === 401 ? STRINGS.wrongSecret : STRINGS.replies[status] || String(status)));
    $("secret").value = "";
  } catch (error) {
    // the token stays: it was not wrong
    tell(
      STRINGS.signIn +
        ": " +
        STRINGS.notDone +
        (error.name === "TimeoutError" ? fill(STRINGS.noReply, { seconds: ANSWER_MS / 1000 }) : STRINGS.unreachable),
    );
  }
  waiting = false;
}

function tell(said) {
  $("message").textContent = said;
}
