// Runs pieces of JavaScript that Python sends, one JSON value on a line, with `page` of Playwright in scope.
// Usage: node page.mjs FOLDER CHROMIUM, where FOLDER has the package playwright-core.
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";

const { chromium } = createRequire(join(process.argv[2], "package.json"))("playwright-core");
const args = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];
const browser = await chromium.launch({ executablePath: process.argv[3], args });
const AsyncFunction = (async () => {}).constructor;
let context, page, seen;

async function open({ url, width = 1100, height = 900, dark = false }) {
  await context?.close();
  context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? "dark" : "light" });
  page = await context.newPage();
  page.setDefaultTimeout(60_000);
  seen = { errors: [], sizes: {}, urls: [] };
  const now = seen;
  page.on("console", (x) => ["error", "warning"].includes(x.type()) && now.errors.push(x.text()));
  page.on("pageerror", (x) => now.errors.push(x.message));
  page.on("response", async (x) => {
    now.urls.push(x.url());
    now.sizes[x.url()] = (await x.body().catch(() => "")).length;
  });
  await page.goto(url);
}

for await (const line of createInterface({ input: process.stdin })) {
  const { what, code, given } = JSON.parse(line);
  let answer;
  try {
    if (what === "open") answer = { value: await open(given) };
    else if (what === "seen") answer = { value: seen };
    else answer = { value: await new AsyncFunction("page", "given", code)(page, given) };
  } catch (error) {
    answer = { error: String(error.stack ?? error) };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
await browser.close();
