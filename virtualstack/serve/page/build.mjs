// Build the page into a folder: `node build.mjs FOLDER`. `page.*` is for the server, and `report.*` for reports.
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const folder = resolve(process.argv[2]);
await rm(folder, { recursive: true, force: true });
await mkdir(folder, { recursive: true });

// numcodecs makes functions from text, which the content security policy of the page forbids. This function does the same
// as that text: it is given the names of its parameters and a body, and then the values.
const binding = (names) => {
  const body = names.at(-1);
  const types = names.filter((x) => x.startsWith("argType"));
  const endings = names.filter((x) => x.endsWith("_dtor"));
  return (...values) => {
    const of = (name) => values[names.indexOf(name)];
    return (...given) => {
      if (given.length !== types.length) throw new TypeError(`${of("humanName")} takes ${types.length} arguments`);
      const destructors = body.includes("var destructors") ? [] : null;
      const wired = given.map((x, i) => of(types[i]).toWireType(destructors, x));
      const found = of("invoker")(of("fn"), ...wired);
      if (destructors) of("runDestructors")(destructors);
      for (const name of endings) of(name)(wired[Number(/^arg(\d+)/.exec(name)[1])]);
      return body.includes("fromWireType") ? of("retType").fromWireType(found) : undefined;
    };
  };
};
const withoutEvaluation = {
  name: "without-evaluation",
  setup(on) {
    on.onLoad({ filter: /numcodecs.dist.(blosc|lz4|zstd)\.js$/ }, async ({ path }) => {
      const before = await readFile(path, "utf8");
      const pattern = /function (\w+)\(a\) {\s+var b = Function;[^]*?return a instanceof Object \? a : c;\s+}/;
      if (!pattern.test(before)) throw new Error(`${path} is not as the build knows it`);
      return { contents: before.replace(pattern, (_, name) => `const ${name} = ${binding};`), loader: "js" };
    });
  },
};

// The reader of vstacks is beside the page, and has packages of its own.
const alias = Object.fromEntries(["zarrita", "xz-decompress"].map((name) => [name, join(here, "node_modules", name)]));

const common = {
  alias,
  plugins: [withoutEvaluation],
  absWorkingDir: here,
  bundle: true,
  minify: true,
  target: "es2022",
  legalComments: "none",
  outdir: folder,
  jsx: "automatic",
  jsxImportSource: "preact",
  loader: { ".css": "css", ".json": "file" },
  assetNames: "[name]",
  metafile: true,
  logLevel: "warning",
};
const page = await build({
  ...common,
  entryPoints: { page: "src/main.tsx", style: "src/style.css" },
  format: "esm",
  splitting: true,
  chunkNames: "[name]-[hash]",
  define: { LIVE: "true" },
});
await build({ ...common, entryPoints: { report: "src/main.tsx" }, format: "iife", define: { LIVE: "false" } });

// What the first map needs is fetched beside the page, not when a module that imports it has come.
const { outputs } = page.metafile;
const fromSource = (source) => Object.keys(outputs).find((name) => outputs[name].entryPoint?.endsWith(source));
const needed = (name) => [name, ...outputs[name].imports.filter((x) => x.kind === "import-statement").flatMap((x) => needed(x.path))];
const preloads = (at, ...sources) => [...new Set(["src/main.tsx", ...sources].flatMap((x) => needed(fromSource(x))))]
  .slice(1).map((name) => `<link rel="modulepreload" href="${at}${basename(name)}">\n`).join("");
const heads = { index: preloads("-/assets/", "src/live.ts", "js/src/served.ts"), page: preloads("", "src/store.ts", "src/live.ts"), report: "" };
for (const [name, links] of Object.entries(heads)) {
  const text = await readFile(join(here, "src", `${name}.html`), "utf8");
  await writeFile(join(folder, `${name}.html`), text.replace("</head>", `${links}</head>`));
}

const packages = new Set();
for (const input of Object.keys(page.metafile.inputs)) {
  const found = input.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//);
  if (found) packages.add(found[1]);
}
let text = "The page contains these packages:\n";
for (const name of [...packages].sort()) {
  const at = join(here, "node_modules", name);
  const { version, license } = JSON.parse(await readFile(join(at, "package.json"), "utf8"));
  const read = (name) => readFile(join(at, name), "utf8");
  const full = await read("LICENSE").catch(() => read("LICENSE.md")).catch(() => `License: ${license}\n`);
  text += `\n---- ${name} ${version} ----\n\n${full.trim()}\n`;
}
await writeFile(join(folder, "LICENSES.txt"), text);
