// The lesson's page: guesses, draggable numbers, moving traces and litmus tests.  The page is readable without it.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const { size, time, digits, decades } = collbench; // as in reports
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const $ = (id) => document.getElementById(id);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  root.classList.add("live");

  // ---- elements ----
  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (typeof value === "function") element.addEventListener(name, value);
      else element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  }
  const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
  const draw = (tag, attributes = {}, ...children) =>
    fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

  // Call `act` once in the next frame, however often it is requested.
  function inAFrame(act) {
    let asked = false;
    return () => {
      if (asked) return;
      asked = true;
      requestAnimationFrame(() => { asked = false; act(); });
    };
  }

  // ---- light and dark ----
  const shade = () => root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  function paint(theme) {
    if (theme) root.dataset.theme = theme;
    const dark = shade() === "dark";
    $("theme").textContent = dark ? "Light" : "Dark";
    $("theme").setAttribute("aria-label", dark ? "Change to light colours" : "Change to dark colours");
  }
  function themes() {
    $("theme").hidden = false;
    $("theme").addEventListener("click", () => paint(shade() === "dark" ? "light" : "dark"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => paint());
    paint();
  }

  // ---- the reader's position ----
  function navigation() {
    const list = document.querySelector("nav ol"), links = new Map(all("nav a").map((link) => [link.hash.slice(1), link]));
    const seen = new IntersectionObserver((entries) => {
      const entry = entries.find((each) => each.isIntersecting);
      if (!entry) return;
      for (const [name, link] of links) {
        if (name === entry.target.id) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
      const link = links.get(entry.target.id);
      list.scrollTo({ left: link.offsetLeft - list.offsetLeft - (list.clientWidth - link.offsetWidth) / 2 });
    }, { rootMargin: "-25% 0px -70% 0px" });
    for (const name of links.keys()) seen.observe($(name));
    const scrolled = inAFrame(() => {
      const way = root.scrollHeight - innerHeight;
      $("progress").style.transform = `scaleX(${way > 0 ? Math.min(1, scrollY / way) : 1})`;
    });
    addEventListener("scroll", scrolled, { passive: true });
  }

  // ---- guesses, stored until the page is closed ----
  const KEY = `collbench lesson ${document.title}`;
  function remembered() {
    try { return JSON.parse(sessionStorage.getItem(KEY)) || {}; } catch { return {}; }
  }
  function remember(guesses) {
    try { sessionStorage.setItem(KEY, JSON.stringify(guesses)); } catch { /* storage is disabled */ }
  }
  function questions() {
    const guesses = remembered(), asked = all(".question");
    const score = () => {
      const right = asked.filter((each) => guesses[each.id] === Number(each.dataset.answer)).length;
      $("right").textContent = `${right} of ${asked.length}`;
    };
    for (const question of asked) {
      const guess = guessing(question, (choice) => { guesses[question.id] = choice; remember(guesses); score(); });
      if (question.id in guesses) guess(guesses[question.id]);
    }
    score();
  }
  // Make buttons of a question's choices, and return a function that shows a guess.
  function guessing(question, guessed) {
    const answer = Number(question.dataset.answer), verdict = question.querySelector(".verdict");
    const told = question.querySelector(".answer strong").textContent.trim(); // the number, not only the choice
    const choices = all(".choices li", question);
    const buttons = choices.map((choice, number) => {
      const button = make("button", { type: "button", "aria-pressed": "false" }, ...choice.childNodes);
      button.addEventListener("click", () => {
        if (button.getAttribute("aria-disabled")) return;
        show(number);
        guessed(number);
      });
      choice.replaceChildren(button);
      return button;
    });
    function show(chosen) {
      const right = chosen === answer;
      buttons.forEach((button, number) => {
        button.setAttribute("aria-disabled", "true"); // `disabled` would lose the focus
        button.setAttribute("aria-pressed", String(number === chosen));
        if (number === answer) button.classList.add("right");
        else if (number === chosen) button.classList.add("wrong");
      });
      verdict.textContent = right ? "✓ Right." : `✗ No: it is ${told}`;
      verdict.classList.add(right ? "right" : "wrong");
      question.querySelector("details").open = true;
    }
    return show;
  }

  // ---- draggable numbers ----
  const rate = (value) => `${digits(value / 1e9, 3)} GB/s`;
  const tens = (from, to) => { // ten values in each power of ten, as preferred numbers are (ISO 3, R10)
    const steps = Math.round(10 * Math.log10(to / from));
    return Array.from({ length: steps + 1 }, (_, step) => Number((from * 10 ** (step / 10)).toPrecision(2)));
  };
  const QUANTITIES = {
    size: { label: "size", values: Array.from({ length: 28 }, (_, power) => 2 ** (power + 3)), text: size },
    ranks: { label: "ranks", values: [2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 40, 48, 56, 64, 72], text: String },
    latency: { label: "latency of a step", values: tens(1e-8, 1e-4), text: time },
    bandwidth: { label: "bandwidth of a link", values: tens(1e8, 2e12), text: rate },
  };
  const PIXELS = 8; // of dragging for one step

  function explorer() {
    const chosen = { size: 65536 }, changed = inAFrame(() => { figure(); tell(); });
    let place = data.places[0];
    const numbers = all(".number").map((element) => draggable(element, chosen, changed));

    const buttons = data.places.map((each) => make("button", { type: "button", click: () => choose(each) }, each.name));
    if (buttons.length > 1) $("places").append(...buttons);
    function choose(another, ranks = another.ranks) {
      place = another;
      Object.assign(chosen, { ranks, latency: place.latency, bandwidth: place.bandwidth });
      data.places.forEach((each, number) => buttons[number].setAttribute("aria-pressed", String(each === place)));
      numbers.forEach((number) => number());
      changed();
    }

    const model = (line, bytes) => {
      const [steps, link] = data.counts[line][chosen.ranks - 2];
      return steps * chosen.latency + (link * bytes) / chosen.bandwidth;
    };
    const library = () => (chosen.ranks === place.ranks ? points(place) : []); // if the formula has as many ranks
    const figure = () => plot($("plot"), model, library(), chosen.size);
    // The text follows after a pause, so that a screen reader is not interrupted.
    let later;
    const tell = () => {
      const words = crossover(model, library(), chosen, place);
      clearTimeout(later);
      $("crossover").setAttribute("aria-live", "off");
      $("crossover").textContent = words;
      later = setTimeout(() => {
        $("crossover").setAttribute("aria-live", "polite");
        $("crossover").textContent = "";
        $("crossover").textContent = words;
      }, 700);
    };
    choose(place, data.ranks);
    new ResizeObserver(inAFrame(figure)).observe($("plot"));
  }

  // Make a slider of a number in the text, and return a function that sets its value.
  function draggable(element, chosen, changed) {
    const name = element.dataset.quantity, quantity = QUANTITIES[name];
    let values = quantity.values, start = null;
    const place = () => values.indexOf(chosen[name]);
    function choose() { // a machine's value need not be among the round ones
      values = [...new Set([...quantity.values, chosen[name]])].sort((one, other) => one - other);
      write();
    }
    function write() {
      element.textContent = quantity.text(chosen[name]);
      const now = { "aria-valuemax": values.length - 1, "aria-valuenow": place(), "aria-valuetext": element.textContent };
      fill(element, now, []);
    }
    function go(to) {
      const value = values[Math.min(Math.max(to, 0), values.length - 1)];
      if (value === chosen[name]) return;
      chosen[name] = value;
      write();
      changed();
    }
    const KEYS = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 5, PageDown: -5, Home: -1e9, End: 1e9 };
    fill(element, {
      role: "slider", tabindex: 0, "aria-label": quantity.label, "aria-valuemin": 0,
      keydown: (event) => {
        if (!(event.key in KEYS) || event.ctrlKey || event.altKey || event.metaKey) return;
        event.preventDefault();
        go(place() + KEYS[event.key]);
      },
      pointerdown: (event) => {
        start = { x: event.clientX, place: place() };
        element.setPointerCapture(event.pointerId);
        element.classList.add("dragged");
      },
      pointermove: (event) => { if (start) go(start.place + Math.round((event.clientX - start.x) / PIXELS)); },
      lostpointercapture: () => { start = null; element.classList.remove("dragged"); },
    }, []);
    return choose;
  }

  // ---- the figure of times by size ----
  const SIZES = Array.from({ length: 109 }, (_, step) => 2 ** (3 + step / 4)); // 8 B to 1 GiB
  const LINES = Object.keys(data.counts);

  // Return ranges of sizes, each with its fastest lines: several if their times are equal.
  function winners(model) {
    const stretches = [];
    for (const bytes of SIZES) {
      const least = Math.min(...LINES.map((line) => model(line, bytes)));
      const best = LINES.filter((line) => model(line, bytes) < least * 1.0005), last = stretches[stretches.length - 1];
      if (last && String(last.best) === String(best)) last.to = bytes;
      else stretches.push({ best, from: bytes, to: bytes });
    }
    return stretches;
  }
  // The size, between two samples, where another line becomes the fastest.
  function crossing(model, before, after) {
    let low = before.to, high = after.from;
    for (let step = 0; step < 20; step++) {
      const middle = Math.sqrt(low * high);
      if (model(before.best[0], middle) < model(after.best[0], middle)) low = middle;
      else high = middle;
    }
    return high;
  }
  function crossings(model) {
    const stretches = winners(model);
    return stretches.slice(1).map((after, number) => crossing(model, stretches[number], after));
  }
  const list = (names) => (names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}` : names[0]);

  function between(points, bytes) {
    const after = points.findIndex(([each]) => each >= bytes);
    if (after < 0 || (after === 0 && points[0][0] > bytes)) return null;
    if (points[after][0] === bytes) return points[after][1];
    const [[low, first], [high, last]] = [points[after - 1], points[after]];
    return first * (last / first) ** (Math.log(bytes / low) / Math.log(high / low));
  }

  function roughly(bytes) { // two digits in the shown unit
    const unit = 1024 ** Math.floor(Math.log(bytes) / Math.log(1024));
    return size(unit * Number((bytes / unit).toPrecision(2)));
  }

  // The points of a place's library, by size.
  function points(place) {
    const curve = place.curves[place.library] || place.curves[place.library.split(":")[0]] || {};
    return Object.entries(curve).map(([bytes, seconds]) => [Number(bytes), seconds]).sort((one, other) => one[0] - other[0]);
  }

  function crossover(model, shown, { size: bytes, ranks }, place) {
    const stretches = winners(model), ends = crossings(model);
    const ways = stretches.map(({ best }, number) => {
      const alike = best.length > 1 ? " (alike)" : "";
      return `${list(best)}${alike}${number < ends.length ? ` up to ${roughly(ends[number])}` : ""}`;
    });
    const fastest = winners((line) => model(line, bytes))[0].best, seconds = model(fastest[0], bytes);
    const known = between(shown, bytes);
    const said = [
      `By the formula the fastest is ${ways.join(", then ")}.`,
      `At ${size(bytes)}: ${list(fastest)} with ${time(seconds)}.`,
      known ? `The library (${place.library}, ${place.ranks} ranks, ${place.name}) takes ${time(known)}: ${digits(known / seconds, 2)} times as long.` : "",
      ranks !== place.ranks && points(place).length ? `The library (${place.library}, ${place.name}) has times for ${place.ranks} ranks only: choose ${place.ranks} ranks to see them.` : "",
    ];
    return said.filter(Boolean).join(" ");
  }

  function plot(box, model, points, chosen) {
    const width = Math.max(280, box.clientWidth), height = width < 560 ? 320 : 400;
    const left = 58, right = width < 560 ? 84 : 100, top = 10, bottom = 44;
    const curves = [...LINES.map((line) => [line, SIZES.map((bytes) => [bytes, model(line, bytes)])]), ["library", points]];
    const seconds = curves.flatMap(([, each]) => each.map((point) => point[1]));
    const range = [Math.floor(Math.log10(Math.min(...seconds))), Math.ceil(Math.log10(Math.max(...seconds)))];
    const x = (bytes) => left + ((Math.log2(bytes) - 3) / 27) * (width - left - right);
    const y = (value) => height - bottom - ((Math.log10(value) - range[0]) / (range[1] - range[0])) * (height - top - bottom);
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Time by message size; the text below says where lines cross." });
    for (const tick of decades(range, true, 8)) {
      svg.append(draw("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
        draw("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, time(tick)));
    }
    for (let power = 3; power <= 30; power += width < 560 ? 9 : 3) {
      svg.append(draw("text", { x: x(2 ** power), y: height - bottom + 20, "text-anchor": "middle" }, size(2 ** power)));
    }
    svg.append(draw("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }),
      draw("line", { class: "at", x1: x(chosen), x2: x(chosen), y1: top, y2: height - bottom }));
    for (const [line, each] of curves.filter(([, some]) => some.length)) {
      const way = each.map(([bytes, value], number) => `${number ? "L" : "M"}${x(bytes).toFixed(1)} ${y(value).toFixed(1)}`).join("");
      svg.append(draw("path", { class: `line-${line}`, d: way, "stroke-dasharray": data.dashes[line] || "" }));
    }
    for (const bytes of crossings(model)) {
      const value = Math.min(...LINES.map((line) => model(line, bytes)));
      svg.append(draw("circle", { class: "cross", cx: x(bytes), cy: y(value), r: 5 }));
    }
    svg.append(...names(curves, x, y, height - bottom));
    box.replaceChildren(svg);
  }
  // Names at the ends of lines, moved apart where they would overlap.
  function names(curves, x, y, lowest) {
    const labels = curves.filter(([, each]) => each.length).map(([line, each]) => {
      const [bytes, seconds] = each[each.length - 1];
      return { line, x: x(bytes) + 7, y: y(seconds) + 4 };
    }).sort((one, other) => one.y - other.y);
    labels.forEach((label, number) => { if (number) label.y = Math.max(label.y, labels[number - 1].y + 15); });
    const over = labels.length ? labels[labels.length - 1].y - lowest : 0;
    return labels.map((label) => draw("text", { class: `name line-${label.line}`, x: label.x, y: over > 0 ? label.y - over : label.y }, label.line));
  }

  // ---- traces ----
  const VERBS = { waited: "waits", moved: "moves", added: "adds", published: "publishes", launch: "launches" };
  const WHOLE = 12; // seconds that a trace lasts at speed 1

  // Return the ranks' contents after each event that moves or adds: a mask of ranks for each chunk, and counts of flags.
  // Data from another rank arrive at the end of the event.  Data to another rank arrive at once, unless that rank has
  // its own event that takes them.
  function contents(trace) {
    const ranks = trace.ranks, chunks = (event) => (event.chunk === null ? [...Array(ranks).keys()] : [event.chunk % ranks]);
    const takes = (rank, event) => trace.events.some((each) => each.rank === rank && each.phase !== "waited" &&
      each.start + each.seconds > event.start + event.seconds && each.sources.includes(event.rank) && (each.chunk === null || each.chunk === event.chunk));
    const held = Array.from({ length: ranks }, (_, rank) => Array(ranks).fill(1 << rank)), flags = Array(ranks).fill(0);
    const found = [{ time: -1, held: held.map((each) => [...each]), flags: [...flags] }], taken = new Map();
    const moments = trace.events.filter((event) => event.phase !== "waited")
      .flatMap((event) => [[event.start, 1, event], [event.start + event.seconds, 0, event]])
      .sort((one, other) => one[0] - other[0] || one[1] - other[1]);
    for (const [at, begins, event] of moments) {
      if (begins) {
        taken.set(event, chunks(event).map((chunk) => event.sources.reduce((mask, source) => mask | held[source][chunk], 0)));
        continue;
      }
      if (event.phase === "published") for (const target of event.targets) flags[target] += 1;
      else chunks(event).forEach((chunk, number) => {
        held[event.rank][chunk] |= (taken.get(event) || [])[number];
        for (const target of event.targets) if (!takes(target, event)) held[target][chunk] |= held[event.rank][chunk];
      });
      found.push({ time: at, held: held.map((each) => [...each]), flags: [...flags] });
    }
    return found;
  }

  // The last index in a sorted list with a time up to `at`; -1 if there is none.
  function last(sorted, at, timeOf) {
    let low = 0, high = sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (timeOf(sorted[middle]) <= at) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  function player(element) {
    const trace = data.traces[element.dataset.trace], ranks = [...Array(trace.ranks).keys()];
    const end = Math.max(...trace.events.map((event) => event.start + event.seconds));
    const tracks = ranks.map((rank) => trace.events.filter((event) => event.rank === rank).sort((one, other) => one.start - other.start));
    const moments = [...new Set([0, ...trace.events.map((event) => event.start), end])].sort((one, other) => one - other);
    const states = contents(trace), lines = all("[data-line]", element.closest("section"));
    const parts = controls(element, trace, { toggle, step, seek, nudge: (way) => seek(at + (way * end) / 100) });
    let scene, at = 0, now = ranks.map(() => null), state = -1, playing = 0, telling = 0, before = 0, width = 0;

    const current = (rank) => {
      const event = tracks[rank][last(tracks[rank], at, (each) => each.start)];
      return event && (at < event.start + event.seconds || at === end) ? event : null;
    };
    // `changed` redraws after an event; other frames change only transforms, of the cursor and of moving parts.
    function show(to) {
      at = Math.min(Math.max(to, 0), end);
      const events = ranks.map(current);
      if (events.some((event, rank) => event !== now[rank])) changed(events);
      const place = last(states, at, (each) => each.time);
      if (place !== state) scene.hold(states[state = place]);
      scene.move(events, at);
      parts.cursor.style.transform = `translateX(${(at / end) * width}px)`;
      if (!playing && !telling) telling = setTimeout(told, 100); // texts change slower than frames
    }
    function changed(events) {
      const lit = lines.map((_, line) => ranks.filter((rank) => events[rank] && events[rank].lines.includes(line)));
      events.forEach((event, rank) => {
        if (event === now[rank]) return;
        scene.act(rank, event);
        parts.words[rank].textContent = event ? event.words : at > 0 && at >= (tracks[rank][0] || { start: 0 }).start ? "is done, or between two events" : "has not begun";
      });
      lines.forEach((line, number) => light(line, lit[number]));
      now = events;
      if (playing) parts.clock.textContent = `${time(at)} of ${time(end)}`;
    }
    const sentence = () => `${time(at)} of ${time(end)}. ${ranks.map((rank) => `Rank ${rank}: ${parts.words[rank].textContent}.`).join(" ")}`;
    function told() {
      telling = 0;
      parts.slider.value = String(Math.round((at / end) * 1000));
      parts.clock.textContent = `${time(at)} of ${time(end)}`;
      parts.slider.setAttribute("aria-valuetext", sentence());
    }

    function seek(to) {
      pause();
      show(to);
    }
    function step(way) {
      pause();
      const close = end * 1e-9, next = way > 0 ? moments.find((each) => each > at + close) : moments.filter((each) => each < at - close).pop();
      if (next !== undefined) show(next);
      parts.live.textContent = sentence();
    }
    function toggle() {
      if (playing) return pause();
      if (at >= end) show(0);
      parts.play.textContent = "Pause";
      parts.live.textContent = "";
      before = performance.now();
      playing = calm.matches ? setInterval(leap, 1500) : requestAnimationFrame(frame);
    }
    function pause() {
      if (!playing) return;
      if (calm.matches) clearInterval(playing);
      else cancelAnimationFrame(playing);
      playing = 0;
      parts.play.textContent = "Play";
      told();
      parts.live.textContent = sentence();
    }
    function frame(moment) {
      playing = requestAnimationFrame(frame);
      show(at + (Math.max(0, moment - before) / 1000 / WHOLE) * Number(parts.speed.value) * end);
      before = moment;
      if (at >= end) pause();
    }
    function leap() { // with reduced motion: from event to event
      const next = moments.find((each) => each > at);
      if (next === undefined) return pause();
      show(next);
    }

    function fit() {
      scene = stage(element.querySelector(".stage"), trace);
      width = parts.rail.clientWidth;
      now = ranks.map(() => undefined);
      state = -1;
      show(at);
    }
    let fitted = 0;
    new ResizeObserver(inAFrame(() => {
      if (element.clientWidth !== fitted) { fitted = element.clientWidth; fit(); }
    })).observe(element);
    fit();
  }

  // Highlight a line of code, with the colours of its ranks at the edge.
  function light(line, ranks) {
    if ((line.dataset.ranks || "") === String(ranks)) return;
    line.dataset.ranks = String(ranks);
    line.classList.toggle("lit", ranks.length > 0);
    const bands = ranks.map((rank, number) => `var(--rank-${rank % 4}) ${(100 * number) / ranks.length}% ${(100 * (number + 1)) / ranks.length}%`);
    line.style.borderImage = ranks.length ? `linear-gradient(${bands.join(", ")}) 1` : "";
  }

  // Add the controls of a trace, and return its changing parts.
  function controls(element, trace, { toggle, step, seek, nudge }) {
    const end = Math.max(...trace.events.map((event) => event.start + event.seconds)), timeline = element.querySelector(".timeline");
    const cursor = make("i"), rail = make("div", { class: "cursor", "aria-hidden": "true" }, cursor);
    const slider = make("input", {
      type: "range", min: 0, max: 1000, value: 0, step: 1, "aria-label": "Time in the operation",
      input: () => seek((Number(slider.value) / 1000) * end),
      keydown: (event) => {
        const ways = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 };
        if (event.key in ways) nudge(ways[event.key]);
        else if (event.key === "PageUp" || event.key === "PageDown") step(event.key === "PageUp" ? 1 : -1);
        else if (event.key === " ") toggle();
        else return;
        event.preventDefault();
      },
    });
    const play = make("button", { type: "button", click: toggle }, "Play");
    const back = make("button", { type: "button", click: () => step(-1), "aria-label": "Previous event" }, "◀ Event");
    const on = make("button", { type: "button", click: () => step(1), "aria-label": "Next event" }, "Event ▶");
    const speed = make("select", { "aria-label": "Speed" }, ...[0.25, 0.5, 1, 2, 4].map((each) => make("option", { value: each }, `${each} ×`)));
    speed.value = "1";
    const clock = make("span", { class: "clock" }), live = make("p", { class: "unseen", role: "status" });
    const words = [...Array(trace.ranks).keys()].map(() => make("span"));
    const spoken = words.map((each, rank) => make("li", {}, make("b", { style: `color:var(--rank-${rank % 4})` }, `rank ${rank}`), each));
    const drag = (event) => {
      const box = rail.getBoundingClientRect();
      seek(((event.clientX - box.left) / box.width) * end);
    };
    fill(timeline, {
      pointerdown: (event) => {
        if (event.target === slider) return;
        timeline.setPointerCapture(event.pointerId);
        drag(event);
      },
      pointermove: (event) => { if (timeline.hasPointerCapture(event.pointerId)) drag(event); },
    }, [make("div", { class: "scrub" }, slider), rail]);
    element.querySelector(".stage").after(make("ul", { class: "words", "aria-label": "Present action of each rank" }, ...spoken));
    timeline.after(make("div", { class: "buttons" }, play, back, on, speed, clock), live);
    return { cursor, rail, slider, play, speed, clock, live, words };
  }

  // ---- the drawing: ranks as boxes, chunks with a stripe for each rank's part in them, arrows ----
  const HIGH = 116, ROOM = 92; // of a box, and between rows of boxes
  const LANES = { wait: 0, pull: 11, push: 29, flag: 43 }; // pixels from the line between two boxes

  function places(ranks, width) {
    const wide = Math.min(250, (width - 108) / 2), left = 2, right = width - wide - 2, low = HIGH + ROOM;
    const spots = ranks === 3 ? [[left, 2], [right, 2], [(width - wide) / 2, low]] : [[left, 2], [right, 2], [right, low], [left, low]];
    return { wide, boxes: [...Array(ranks).keys()].map((rank) => {
      const [x, y] = spots[rank % 4];
      return { x, y: y + Math.floor(rank / 4) * 2 * low, centre: [x + wide / 2, y + HIGH / 2] };
    }) };
  }

  function stage(box, trace) {
    const width = Math.max(270, box.clientWidth), ranks = [...Array(trace.ranks).keys()];
    const { wide, boxes } = places(trace.ranks, width), height = Math.max(...boxes.map((each) => each.y)) + HIGH + 4;
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }); // the text next to it says the same
    const drawn = ranks.map((rank) => rankBox(rank, trace.ranks, boxes[rank], wide));
    const pools = ranks.map(() => Array.from({ length: 2 * trace.ranks - 2 }, arrow));
    svg.append(...drawn.map((each) => each.group), ...pools.flat().map((each) => each.group));
    box.replaceChildren(svg, ...pools.flat().map((each) => each.dot));

    function act(rank, event) {
      const spans = event ? arrows(event) : [];
      drawn[rank].act(event);
      pools[rank].forEach((each, number) => {
        const span = spans[number];
        each.group.setAttribute("class", span ? `arrow shown ${span.kind}` : "arrow");
        each.dot.setAttribute("class", span ? `dot ${span.kind}` : "dot");
        each.way = null;
        if (span) each.lay(boxes[span.from], boxes[span.to], wide, LANES[span.lane], span.from, event.chunk);
      });
    }
    function move(events, at) {
      events.forEach((event, rank) => {
        if (!event || event.phase === "waited") return;
        const share = event.seconds ? Math.min(1, (at - event.start) / event.seconds) : 1;
        for (const each of pools[rank]) {
          if (!each.way) break;
          each.dot.style.transform = `translate(${each.way[0] + each.way[2] * share}px, ${each.way[1] + each.way[3] * share}px)`;
        }
      });
    }
    return { act, move, hold: (state) => drawn.forEach((each, rank) => each.hold(state.held[rank], state.flags[rank])) };
  }
  // The arrows of an event.
  function arrows(event) {
    const { rank, phase, sources, targets } = event;
    if (phase === "waited") return sources.map((from) => ({ kind: "wait", lane: "wait", from, to: rank }));
    const kind = phase === "published" ? "flag" : "data";
    return [...sources.map((from) => ({ kind, lane: kind === "flag" ? "flag" : "pull", from, to: rank })),
      ...targets.map((to) => ({ kind, lane: kind === "flag" ? "flag" : "push", from: rank, to }))];
  }

  function rankBox(rank, ranks, { x, y }, wide) {
    const group = draw("g", { transform: `translate(${x} ${y})` }), verb = draw("text", { class: "soft", x: 12, y: 40 });
    const count = draw("text", { class: "soft", x: 30, y: HIGH - 10 }), room = (wide - 24) / ranks, stripes = [], cells = [];
    group.append(draw("rect", { class: "box", width: wide, height: HIGH, rx: 10 }),
      draw("text", { class: "rank", x: 12, y: 22, style: `fill:var(--rank-${rank % 4})` }, `rank ${rank}`), verb, count,
      draw("path", { class: "pole", d: `M13 ${HIGH - 8}v-13h10l-3 3.5 3 3.5h-9`, fill: "none", "stroke-width": 1.5 }));
    for (let chunk = 0; chunk < ranks; chunk++) {
      const cell = draw("g", { transform: `translate(${12 + chunk * room} 50)` }), inner = room - 6, each = inner / ranks;
      stripes.push([...Array(ranks).keys()].map((part) => draw("rect", { x: part * each, width: each, height: 30, style: `fill:var(--rank-${part % 4})`, opacity: 0 })));
      cell.append(draw("rect", { class: "cell", width: inner, height: 30, rx: 3 }), ...stripes[chunk]);
      cells.push(cell);
      group.append(cell);
    }
    function act(event) {
      verb.textContent = event ? VERBS[event.phase] || event.phase : "";
      group.classList.toggle("waiting", Boolean(event) && event.phase === "waited");
      const touched = event && (event.phase === "moved" || event.phase === "added");
      cells.forEach((cell, chunk) => cell.classList.toggle("touched", Boolean(touched) && (event.chunk === null || event.chunk % ranks === chunk)));
    }
    function hold(masks, flags) {
      masks.forEach((mask, chunk) => stripes[chunk].forEach((stripe, part) => stripe.setAttribute("opacity", (mask >> part) & 1 ? 0.9 : 0)));
      count.textContent = flags === 1 ? "1 flag" : `${flags} flags`;
    }
    return { group, act, hold };
  }

  function arrow() {
    const line = draw("line"), head = draw("path", { class: "head", d: "M0 0 -9 -4.5 -9 4.5Z" });
    const load = draw("rect", { class: "load", x: -9, y: -8, width: 18, height: 16, rx: 3 });
    const label = draw("text", { class: "load", y: 4.5, "text-anchor": "middle", style: "fill:var(--page);font-size:12px" });
    const dot = draw("svg", { class: "dot", viewBox: "-12 -11 24 22", "aria-hidden": "true" }, load, label, draw("path", { class: "pole", d: "M-4 9V-9H9L5 -5 9 -1H-4Z" }));
    const self = { group: draw("g", { class: "arrow" }, line, head), dot, way: null };
    self.lay = (from, to, wide, lane, rank, chunk) => {
      const across = [to.centre[0] - from.centre[0], to.centre[1] - from.centre[1]], long = Math.hypot(...across);
      const [ex, ey] = across.map((each) => each / long), shift = [-ey * lane, ex * lane];
      // From border to border of the boxes.
      const reach = Math.min(ex ? wide / 2 / Math.abs(ex) : 1e9, ey ? HIGH / 2 / Math.abs(ey) : 1e9) + 5;
      const x1 = from.centre[0] + ex * reach + shift[0], y1 = from.centre[1] + ey * reach + shift[1];
      const x2 = to.centre[0] - ex * reach + shift[0], y2 = to.centre[1] - ey * reach + shift[1];
      fill(line, { x1, y1, x2, y2 }, []);
      head.setAttribute("transform", `translate(${x2} ${y2}) rotate(${(Math.atan2(ey, ex) * 180) / Math.PI})`);
      load.setAttribute("style", `fill:var(--rank-${rank % 4})`);
      label.textContent = chunk === null ? "" : String(chunk);
      self.way = [x1, y1, x2 - x1, y2 - y1];
    };
    return self;
  }

  // ---- litmus tests, step by step ----
  function litmus(element) {
    const steps = all("[data-step]", element), live = make("p", { class: "unseen", role: "status" });
    const instruction = (step) => element.querySelector(`[data-at="${step.dataset.step}"]`);
    let at = -1, playing = 0;
    const back = make("button", { type: "button", click: () => go(at - 1) }, "◀ Previous");
    const on = make("button", { type: "button", click: () => go(at + 1) }, "Next ▶");
    const play = make("button", { type: "button", click: () => (playing ? pause() : start()) }, "Play");
    function show(to) {
      at = Math.min(Math.max(to, -1), steps.length - 1);
      all("[data-at]", element).forEach((each) => each.classList.remove("done", "now", "wrong"));
      steps.forEach((step, number) => {
        step.classList.toggle("now", number === at);
        if (number <= at) instruction(step)?.classList.add("done");
        if (number === at) instruction(step)?.classList.add("now", ...(step.classList.contains("wrong") ? ["wrong"] : []));
      });
      live.textContent = at < 0 ? "" : `Step ${at + 1} of ${steps.length}: ${steps[at].textContent}`;
    }
    function go(to) { pause(); show(to); }
    function start() {
      show(at >= steps.length - 1 ? 0 : at + 1);
      play.textContent = "Pause";
      playing = setInterval(() => (at >= steps.length - 1 ? pause() : show(at + 1)), 1600);
    }
    function pause() {
      clearInterval(playing);
      playing = 0;
      play.textContent = "Play";
    }
    element.querySelector(".threads").after(make("div", { class: "buttons" }, back, on, play), live);
  }

  // ---- print: everything open, in light colours ----
  function printing() {
    let closed = [], theme;
    addEventListener("beforeprint", () => {
      closed = all("details:not([open])");
      closed.forEach((each) => { each.open = true; });
      theme = root.dataset.theme;
      root.dataset.theme = "light";
    });
    addEventListener("afterprint", () => {
      closed.forEach((each) => { each.open = false; });
      if (theme) root.dataset.theme = theme;
      else delete root.dataset.theme;
    });
  }

  themes();
  navigation();
  questions();
  explorer();
  all(".player").forEach(player);
  all(".litmus").forEach(litmus);
  printing();
})();
