// The sign-in: the secret goes into the body of one request and comes back as a cookie that no script can read.
import { STRINGS } from "./strings.js";

const $ = (id) => document.getElementById(id);

async function start() {
  document.documentElement.lang = STRINGS.lang;
  document.title = STRINGS.title;
  const texts = { title: STRINGS.title, "name-label": STRINGS.name, send: STRINGS.signIn };
  for (const [id, words] of Object.entries(texts)) $(id).textContent = words;
  $("sign-in").addEventListener("submit", signIn);
  const { named } = await (await fetch("session")).json();
  $("name-row").hidden = !named;
  $("secret-label").textContent = named ? STRINGS.secret : STRINGS.token;
  (named ? $("name") : $("secret")).focus();
}

async function signIn(event) {
  event.preventDefault();
  let said = STRINGS.unreachable;
  try {
    const body = JSON.stringify({ name: $("name").value.trim(), secret: $("secret").value });
    const { ok, status } = await fetch("session", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    if (ok) { location.reload(); return; }
    said = status === 401 ? STRINGS.wrongSecret : STRINGS.replies[status] || String(status);
  } catch {
    // the cell cannot be reached
  }
  $("message").textContent = STRINGS.refused + said;
  $("secret").value = "";
}

start();
