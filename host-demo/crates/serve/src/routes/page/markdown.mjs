// Parses Markdown into a tree of elements: [tag, attributes, ...children], where a child is an element or a text. The
// page builds its nodes from the tree without HTML, so no text of a model becomes markup. Time and depth are bounded for
// any text: parsing is linear in its length, up to a factor of DEEPEST.
//
// Supported: headings, paragraphs (line breaks are kept), fenced code, lists, quotes, rules, tables, emphasis, strike,
// code, links and bare addresses. HTML is text, except <br>. Images are links, because the page loads nothing.

const DEEPEST = 12; // of nested lists and quotes, and of nested emphasis

const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: +|$)/;
const DELIMITERS = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

export const markdown = (text) => blocks(text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n"), 0);

const indent = (line) => line.length - line.trimStart().length;
const isBlank = (line) => line.trim() == "";
const isTable = (line, next) => line.includes("|") && next != null && next.includes("|") && DELIMITERS.test(next);
const begins = (line) => FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line);

function blocks(lines, depth) {
  const out = [];
  const isDeep = depth >= DEEPEST;
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    let found;
    if (isBlank(line)) {
      at++;
    } else if ((found = FENCE.exec(line))) {
      const [, before, mark, info] = found;
      const isEnd = (line) => line.trim().startsWith(mark) && isBlank(line.trim().replaceAll(mark[0], ""));
      const code = [];
      for (at++; at < lines.length && !isEnd(lines[at]); at++) code.push(lines[at].slice(Math.min(before.length, indent(lines[at]))));
      at++;
      out.push(["pre", { language: info.trim().split(/\s/)[0] }, code.join("\n")]);
    } else if ((found = HEADING.exec(line))) {
      out.push(["h" + found[1].length, {}, ...inline((found[2] ?? "").trim())]);
      at++;
    } else if (RULE.test(line)) {
      out.push(["hr", {}]);
      at++;
    } else if (QUOTE.test(line) && !isDeep) {
      const inner = [];
      for (; at < lines.length && QUOTE.test(lines[at]); at++) inner.push(lines[at].replace(QUOTE, ""));
      out.push(["blockquote", {}, ...blocks(inner, depth + 1)]);
    } else if (ITEM.test(line) && !isDeep) {
      at = list(lines, at, depth, out);
    } else if (isTable(line, lines[at + 1])) {
      at = table(lines, at, out);
    } else {
      const start = at;
      do at++;
      while (at < lines.length && !isBlank(lines[at]) && (isDeep || !begins(lines[at])) && !isTable(lines[at], lines[at + 1]));
      out.push(["p", {}, ...inline(lines.slice(start, at).map((line) => line.trim()).join("\n"))]);
    }
  }
  return out;
}

// Adds the list that begins at line `at`. Returns the line after it. Lines belong to an item if they are indented by at
// least two spaces more than its mark: models are less exact than the standard.
function list(lines, at, depth, out) {
  const [, base, mark] = ITEM.exec(lines[at]);
  const isOrdered = /\d/.test(mark);
  const kind = (mark) => mark.replace(/\d+/, "");
  const items = [];
  let [isLoose, blanks] = [false, 0];
  for (;;) {
    const found = at < lines.length && !RULE.test(lines[at]) && ITEM.exec(lines[at]);
    const shift = found && found[1].length - base.length;
    if (!found || shift < 0 || shift > 1 || kind(found[2]) != kind(mark)) break;
    isLoose ||= blanks > 0;
    blanks = 0;
    const width = found[0].length;
    const inner = [lines[at++].slice(width)];
    for (; at < lines.length; at++) {
      const line = lines[at];
      if (isBlank(line)) blanks++;
      else if (indent(line) >= base.length + 2 || (!blanks && !begins(line))) {
        isLoose ||= blanks > 0 && !ITEM.test(line);
        for (; blanks; blanks--) inner.push("");
        inner.push(line.slice(Math.min(width, indent(line))));
      } else break;
    }
    items.push(inner);
  }
  const item = (inner) => {
    const content = blocks(inner, depth + 1);
    return ["li", {}, ...(isLoose ? content : content.flatMap((block) => (block[0] == "p" ? block.slice(2) : [block])))];
  };
  out.push([isOrdered ? "ol" : "ul", isOrdered ? { start: parseInt(mark) } : {}, ...items.map(item)]);
  return at;
}

function table(lines, at, out) {
  const cells = (line) => {
    const cells = [];
    for (const part of line.trim().replace(/^\|/, "").split("|")) {
      const last = cells.at(-1);
      if (last?.endsWith("\\")) cells[cells.length - 1] = last.slice(0, -1) + "|" + part;
      else cells.push(part);
    }
    if (isBlank(cells.at(-1)) && cells.length > 1) cells.pop();
    return cells.map((cell) => cell.trim());
  };
  const sides = cells(lines[at + 1]).map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : ""));
  const row = (tag, line) => ["tr", {}, ...cells(line).map((cell, column) => [tag, { side: sides[column] ?? "" }, ...inline(cell)])];
  const head = row("th", lines[at]);
  const body = [];
  for (at += 2; at < lines.length && lines[at].includes("|"); at++) body.push(row("td", lines[at]));
  out.push(["table", {}, ["thead", {}, head], ["tbody", {}, ...body]]);
  return at;
}

// Marks, links and line breaks in a paragraph.
const TOKEN = new RegExp(
  [
    /\\[!-/:-@[-`{-~]/, // an escaped mark
    /`+|\*+|_+|~~/,
    /!?\[/, // the start of a link; the next pattern is its end
    /\]\((?:[^()\s]|\([^()\s]*\))*(?:\s+"[^"\n]*")?\)/,
    /<br ?\/?>|\n/,
    /<https?:\/\/[^\s<>]+>|https?:\/\/[^\s<>`[\]]+/,
  ].map((part) => part.source).join("|"),
  "g",
);
const isWord = (c) => c != null && /[\p{L}\p{N}]/u.test(c);
const isSpace = (c) => c == null || /\s/.test(c);

// Only these addresses become links: others could run a script.
function link(url, children) {
  if (!/^(https?:\/\/|mailto:)/i.test(url)) return null;
  return ["a", { href: url }, ...children.flatMap((child) => (Array.isArray(child) && child[0] == "a" ? child.slice(2) : [child]))];
}

// Parses the text of a paragraph. `open` is a stack of marks that may still be closed, each with the elements after it.
function inline(text) {
  const open = [{ mark: "", out: [] }];
  const unclosed = new Set(); // lengths of backtick runs that do not occur again
  const add = (child) => open.at(-1).out.push(child);
  // Turns the marks above position `to` of the stack into text.
  const flatten = (to) => {
    for (const { mark, out } of open.splice(to + 1)) {
      open[to].out = [...open[to].out, mark, ...out];
    }
  };
  const close = (place, wrap) => {
    flatten(place);
    const element = wrap(open[place].out);
    if (element) open.pop(), add(element);
    else flatten(place - 1);
    return element;
  };
  let end = 0;
  TOKEN.lastIndex = 0;
  for (let found; (found = TOKEN.exec(text)); end = TOKEN.lastIndex) {
    const [token] = found;
    const at = found.index;
    if (at > end) add(text.slice(end, at));
    const [before, after] = [text[at - 1], text[at + token.length]];
    const c = token[0];
    if (token == "\n" || token.startsWith("<br")) add(["br", {}]);
    else if (c == "\\") add(token[1]);
    else if (c == "`") {
      const stop = unclosed.has(token.length) ? -1 : run(text, token, TOKEN.lastIndex);
      if (stop < 0) unclosed.add(token.length), add(token);
      else {
        const code = text.slice(TOKEN.lastIndex, stop).replaceAll("\n", " ");
        add(["code", {}, /^ .*[^ ].* $/.test(code) ? code.slice(1, -1) : code]);
        TOKEN.lastIndex = stop + token.length;
      }
    } else if (c == "<") add(link(token.slice(1, -1), [token.slice(1, -1)]));
    else if (c == "h") {
      const url = bare(token);
      add(link(url, [url]));
      TOKEN.lastIndex = at + url.length;
    } else if (token.endsWith("[") && open.length <= DEEPEST) open.push({ mark: token, out: [] });
    else if (c == "]") {
      const place = open.findLastIndex(({ mark }) => mark.endsWith("["));
      const url = /^\]\((\S*?)(?:\s+"[^"]*")?\)$/.exec(token)[1];
      if (place < 0 || !close(place, (out) => link(url, out.length ? out : [url]))) add(token);
    } else if (c == "*" || c == "_" || c == "~") {
      let rest = token.length;
      const opens = !isSpace(after) && !(c == "_" && isWord(before));
      const closes = !isSpace(before) && !(c == "_" && isWord(after));
      while (closes && rest) {
        const fits = (exact) => open.findLastIndex(({ mark }) => mark[0] == c && (exact ? mark.length == rest : mark.length <= rest));
        const place = fits(true) > 0 ? fits(true) : fits(false);
        if (place <= 0) break;
        const { length } = open[place].mark;
        close(place, (out) => [c == "~" ? "del" : length == 1 ? "em" : "strong", {}, ...out]);
        rest -= length;
      }
      if (opens && rest <= 3 && open.length <= DEEPEST) {
        if (rest >= 2) open.push({ mark: c.repeat(2), out: [] });
        if (rest % 2) open.push({ mark: c, out: [] });
      } else if (rest) add(c.repeat(rest));
    } else add(token);
  }
  add(text.slice(end));
  flatten(0);
  return join(open[0].out);
}

// Returns an address without the punctuation after it.
function bare(token) {
  const marks = token.includes("(") ? ".,:;!?'\"*_~|" : ".,:;!?'\"*_~|)";
  let end = token.length;
  while (marks.includes(token[end - 1])) end--;
  return token.slice(0, end);
}

// Finds the next run of backticks that equals `token`.
function run(text, token, from) {
  for (let at = from; (at = text.indexOf(token, at)) >= 0; ) {
    let end = at;
    while (text[end] == "`") end++;
    if (end - at == token.length) return at;
    at = end;
  }
  return -1;
}

// Joins neighbouring texts.
function join(children) {
  const out = [];
  for (const child of children) {
    if (typeof child != "string") out.push([child[0], child[1], ...join(child.slice(2))]);
    else if (typeof out.at(-1) == "string") out[out.length - 1] += child;
    else if (child) out.push(child);
  }
  return out;
}
