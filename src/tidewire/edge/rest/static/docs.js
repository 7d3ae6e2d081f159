// Shows an OpenAPI 3.1 document and lets requests be tried. Text only ever becomes text: nothing
// of the document or of an answer is read as HTML.

const byId = (id) => document.getElementById(id);

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// It may be longer than its box: users without a mouse scroll it with the keys.
const output = (properties) => element("pre", { tabIndex: 0, ...properties });

// What stands between backticks is code; nothing else is marked up.
const prose = (text = "") => text.split("`").map((part, index) => (index % 2 ? element("code", {}, part) : part));

// A device of this page's own, and a key that no message has had before.
const FRESH = { device_id: crypto.randomUUID(), client_message_id: crypto.randomUUID() };

// A value of the schema's form, with the schema's own examples where there are any. Of a request
// only what is required is shown: what may be left out is in the description.
function example(schema, root, isRequest = false, depth = 0) {
  if (!schema || depth > 6) return null;
  if (schema.$ref) return example(root.components.schemas[schema.$ref.split("/").pop()], root, isRequest, depth + 1);
  if (schema.examples?.length) return schema.examples[0];
  if (schema.default !== undefined) return schema.default;
  if (schema.enum) return schema.enum[0];
  if (schema.const !== undefined) return schema.const;
  const choice = (schema.oneOf ?? schema.anyOf)?.find((each) => each.type !== "null");
  if (choice) return example(choice, root, isRequest, depth + 1);
  switch (schema.type) {
    case "object": {
      const isShown = (name) => !isRequest || !schema.required?.length || schema.required.includes(name);
      const properties = Object.entries(schema.properties ?? {}).filter(([name]) => isShown(name));
      return Object.fromEntries(properties.map(([name, part]) =>
        [name, (isRequest && FRESH[name]) || example(part, root, isRequest, depth + 1)]));
    }
    case "array": return [example(schema.items, root, isRequest, depth + 1)];
    case "integer": case "number": return schema.minimum ?? 1;
    case "boolean": return false;
    default: return "…";
  }
}

const pretty = (value) => JSON.stringify(value, null, 2);
const bodySchema = (part) => part?.content?.["application/json"]?.schema;

function parameters(operation, inputs) {
  const rows = (operation.parameters ?? []).map((parameter) => {
    const input = element("input", { placeholder: parameter.required ? "required" : "" });
    input.setAttribute("aria-label", parameter.name);
    inputs.push({ parameter, input });
    return element("tr", {},
      element("td", {}, element("code", { textContent: parameter.name })),
      element("td", { className: "quiet", textContent: parameter.in }),
      element("td", {}, input),
      element("td", {}, ...prose(parameter.description)));
  });
  return rows.length ? [element("h3", { textContent: "Parameters" }), element("table", {}, ...rows)] : [];
}

function answers(operation, root) {
  return Object.entries(operation.responses).flatMap(([status, response]) => {
    const heading = element("h3", {}, `${status} · `, ...prose(response.description));
    const schema = bodySchema(response);
    const given = response.content?.["application/json"]?.example;
    return schema ? [heading, output({ textContent: pretty(given ?? example(schema, root)) })] : [heading];
  });
}

async function call(method, path, inputs, body) {
  const headers = {};
  const query = new URLSearchParams();
  for (const { parameter, input } of inputs) {
    if (!input.value) continue;
    if (parameter.in === "path") path = path.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
    if (parameter.in === "query") query.append(parameter.name, input.value);
    if (parameter.in === "header") headers[parameter.name] = input.value;
  }
  const token = byId("token").value.trim();
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const address = query.size ? `${path}?${query}` : path;
  const response = await fetch(address, { method: method.toUpperCase(), headers, body });
  const text = await response.text();
  let shown = text;
  try {
    const answer = JSON.parse(text);
    shown = pretty(answer);
    // After a login, further requests are those of that user.
    const token = answer.data?.tokens?.access_token;
    if (token) byId("token").value = token;
  } catch { /* Not JSON: shown as it is. */ }
  return `${response.status} ${response.statusText}\n\n${shown}`;
}

function operationView(method, path, operation, root) {
  const inputs = [];
  const schema = bodySchema(operation.requestBody);
  const body = schema && element("textarea", { rows: 6, value: pretty(example(schema, root, true)) });
  body?.setAttribute("aria-label", "request body");
  const result = output({ hidden: true });
  const button = element("button", { type: "button", textContent: "Send" });
  button.addEventListener("click", async () => {
    result.hidden = false;
    try { result.textContent = await call(method, path, inputs, body?.value); }
    catch (error) { result.textContent = String(error); }
  });
  const rest = operation.description === operation.summary ? [] : operation.description.split("\n\n");
  return element("details", {},
    element("summary", {},
      element("span", { className: "method", textContent: method.toUpperCase() }),
      element("span", { className: "path", textContent: path }),
      element("span", { className: "quiet" }, ...prose(operation.summary))),
    element("div", {},
      ...rest.map((text) => element("p", {}, ...prose(text))),
      ...parameters(operation, inputs),
      ...(body ? [element("h3", { textContent: "Body" }), body] : []),
      element("p", {}, button), result,
      ...answers(operation, root)));
}

async function show() {
  const root = await (await fetch("/api/v1/openapi.json")).json();
  byId("title").textContent = `${root.info.title} API ${root.info.version}`;
  byId("description").append(...prose(root.info.description));
  const sections = new Map((root.tags ?? []).map((tag) => [tag.name, { tag, views: [] }]));
  for (const [path, item] of Object.entries(root.paths)) {
    for (const [method, operation] of Object.entries(item)) {
      sections.get(operation.tags?.[0])?.views.push(operationView(method, path, operation, root));
    }
  }
  byId("operations").replaceChildren(...[...sections.values()].flatMap(({ tag, views }) => [
    element("h2", { id: tag.name, textContent: tag.name }),
    element("p", { className: "quiet" }, ...prose(tag.description)), ...views]));
  byId("tags").replaceChildren(...[...sections.keys()].map((name) => element("a", { href: `#${name}`, textContent: name })));
}

show().catch((error) => { byId("operations").textContent = `The document cannot be shown: ${error}`; });
