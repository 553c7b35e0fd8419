import { render } from "preact";
import { App } from "./app";
import { EmbeddedFacts, ServerFacts } from "./facts";

declare const LIVE: boolean;

const embedded = document.getElementById("facts");
const report = embedded ? JSON.parse(embedded.textContent!) : null;
const facts = report ? new EmbeddedFacts(report) : new ServerFacts(new URL("./", location.href).href);

render(
  <App
    facts={facts}
    made={report?.made ?? null}
    live={LIVE ? () => import("./live") : null}
  />,
  document.getElementById("page")!,
);
