// What a page shows, as a list in reading order: what can be acted on, and the text around it.
// Roles and names are the browser's own (its accessibility tree); ids count from 1 and hold until the next look.
() => {
  const HIDDEN = new Set(["query", "reward-display", "click-canvas", "sync-task-cover"]);
  const WIDGETS = new Set(["button", "link", "textbox", "searchbox", "checkbox", "radio", "combobox", "listbox", "option",
    "tab", "menuitem", "slider", "spinbutton", "treeitem", "switch"]);
  const shown = [];
  let lastRow = null; // texts in one row of a table share a line
  window.__shown = [];
  const visible = (element) => {
    const style = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    return style.visibility === "visible" && style.display !== "none" && Number(style.opacity) > 0 &&
      box.width > 0 && box.height > 0;
  };
  const add = (node, entry) => {
    window.__shown.push(node);
    shown.push({ id: shown.length + 1, ...entry });
  };
  const words = (text) => text.replace(/\s+/g, " ").trim();
  const nameOf = (element) => {
    const label = element.labels && element.labels.length ? element.labels[0].innerText : "";
    const inside = element.tagName === "SELECT" ? "" : element.innerText;
    return words(element.computedName || label || inside || "").slice(0, 120);
  };
  // The label of a box that stands beside it says nothing that the box's own name does not.
  const tells = (parent, text) => {
    const box = parent.closest("label")?.control;
    return Boolean(box) && ["checkbox", "radio"].includes(box.type) && visible(box) && nameOf(box) === text;
  };
  const describe = (element, role) => {
    const entry = { role, name: nameOf(element) };
    if ("value" in element && ["textbox", "searchbox", "spinbutton", "slider"].includes(role)) entry.value = element.value;
    if (["checkbox", "radio", "switch"].includes(role)) entry.checked = Boolean(element.checked);
    if (element.tagName === "SELECT") {
      entry.options = Array.from(element.options, (option) => words(option.text));
      entry.selected = Array.from(element.selectedOptions, (option) => words(option.text));
    }
    if (element.tagName === "TEXTAREA") entry.multiline = true;
    if (element.hasAttribute("aria-expanded")) entry.expanded = element.getAttribute("aria-expanded") === "true";
    if (role === "tab") entry.selected_tab = element.getAttribute("aria-selected") === "true";
    if (element.disabled) entry.disabled = true;
    if (element === document.activeElement && element !== document.body) entry.focused = true;
    return entry;
  };
  // A picture without a word that can be used; where it has no name, what its author called it.
  const pictured = (element) => {
    if (element.childElementCount || words(element.textContent) || !visible(element)) return false;
    const style = getComputedStyle(element);
    return element.tagName === "IMG" || style.cursor === "pointer" ||
      [style.backgroundImage, style.content].some((value) => value.startsWith("url("));
  };
  const iconName = (element) => {
    const called = `${element.className || element.id}`.replace(/[-_]+/g, " ");
    return words(element.computedName || element.title || [...new Set(called.split(" "))].join(" ")).slice(0, 120);
  };
  const walk = (parent) => {
    for (const node of parent.childNodes) {
      if (node.nodeType === Node.TEXT_NODE) {
        const text = words(node.textContent);
        if (text && visible(parent) && !tells(parent, text)) {
          const pointed = getComputedStyle(parent).cursor === "pointer";
          const row = parent.closest("tr");
          const last = shown[shown.length - 1];
          if (row && !pointed && last && last.role === "text" && lastRow === row) {
            last.name = `${last.name} | ${text}`.slice(0, 300);
            continue;
          }
          lastRow = row;
          add(node, { role: pointed ? "clickable" : "text", name: text.slice(0, 300) });
        }
      } else if (node.nodeType === Node.ELEMENT_NODE) {
        if (HIDDEN.has(node.id) || ["SCRIPT", "STYLE"].includes(node.tagName)) continue;
        const role = node.tagName === "TEXTAREA" ? "textbox" : node.computedRole;
        if (WIDGETS.has(role) && visible(node)) {
          add(node, describe(node, role));
          if (["tab", "treeitem"].includes(role)) walk(node);
        } else if (node.tagName === "INPUT" && visible(node)) {
          add(node, describe(node, node.type === "password" ? "textbox" : node.type));
        } else if (pictured(node) && iconName(node)) {
          add(node, { role: "icon", name: iconName(node) });
        } else {
          walk(node);
        }
      }
    }
  };
  walk(document.body);
  return {
    shown,
    goal: words((document.getElementById("query") || { innerText: "" }).innerText),
    done: Boolean(window.WOB_DONE_GLOBAL),
    reward: Number(window.WOB_RAW_REWARD_GLOBAL || 0),
    url: location.href,
  };
}
