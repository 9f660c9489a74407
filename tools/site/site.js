"use strict";
// The scheme: the system's, until the button says otherwise; remembered where the browser allows it.
const button = document.getElementById("theme");
const system = matchMedia("(prefers-color-scheme: dark)");
const memory = {
  read() { try { return localStorage.getItem("ubex-theme"); } catch { return null; } },
  write(value) { try { localStorage.setItem("ubex-theme", value); } catch { /* pages from disk may have no storage */ } },
};
const isDark = () => (document.documentElement.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
const label = () => { button.textContent = isDark() ? "Light scheme" : "Dark scheme"; };
const kept = memory.read();
if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
button.hidden = false;
button.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  memory.write(document.documentElement.dataset.theme);
  label();
});
system.addEventListener("change", label);
label();
