// The name under which outcomes are reported, kept as long as the tab.

const NAME = "raydebm-reviewer";

/** The name that was given last in this tab; an empty text without one. */
export function reviewerKept() {
  try { return sessionStorage.getItem(NAME) ?? ""; } catch { return ""; /* storage is switched off */ }
}

export function keepReviewer(name) {
  try { sessionStorage.setItem(NAME, name); } catch { /* the name lasts until the page is left */ }
}
