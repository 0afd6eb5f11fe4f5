// Quasar puts the name and value of a slider, and the name of an upload, on elements that never have the focus.
// Here the elements that have it get them too, so that a screen reader says what it is on.
const VALUES = ["aria-label", "aria-valuemin", "aria-valuemax", "aria-valuenow", "aria-orientation"];

function put(element, name, value) {
  if (element && value !== null && element.getAttribute(name) !== value) element.setAttribute(name, value);
}

function passOnNames() {
  for (const slider of document.querySelectorAll(".q-slider")) {
    const focused = slider.querySelector("[tabindex]");
    put(focused, "role", "slider");
    for (const name of VALUES) put(focused, name, slider.getAttribute(name));
    put(slider, "role", "group");
  }
  for (const upload of document.querySelectorAll(".q-uploader")) {
    for (const part of upload.querySelectorAll("a, input[type=file]")) {
      put(part, "aria-label", upload.getAttribute("aria-label"));
    }
    put(upload.querySelector("a"), "role", "button");
  }
}

document.addEventListener("DOMContentLoaded", () => {
  const watched = { subtree: true, childList: true, attributes: true, attributeFilter: VALUES };
  new MutationObserver(passOnNames).observe(document.body, watched);
  passOnNames();
});

// A file dropped beside its button would otherwise replace the page.
for (const type of ["dragover", "drop"]) document.addEventListener(type, (event) => event.preventDefault());
