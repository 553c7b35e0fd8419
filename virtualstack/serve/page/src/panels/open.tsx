/** How to open the cube in other programs. */

import { useState } from "preact/hooks";
import { VariableChoice, type Shown } from "../common";
import type { Overview } from "../facts";

const SAFE = /^[\p{L}\p{N}_./ -]+$/u;
const SAFE_URL = /^[\p{L}\p{N}_./:@%?&=+,~ -]+$/u;

export function OpenPanel(props: Shown & { overview: Overview; isReport: boolean }) {
  const { overview, variable, isReport } = props;
  const isStatic = props.facts.file !== undefined;
  const base = new URL(`./${encodeURIComponent(props.cube).replace("%40", "@")}`, location.href.split("#")[0]).href;
  // Names come from the files of others, and code is copied: no name may end a text of the code.
  const path = variable && SAFE.test(variable.path) ? variable.path : "VARIABLE";
  const url = overview.url && SAFE_URL.test(overview.url) ? overview.url : "URL";
  const [group, name] = [path.slice(0, Math.max(path.lastIndexOf("/"), 0)), path.slice(path.lastIndexOf("/") + 1)];
  const inGroup = group ? `, group="${group}"` : "";
  // GDAL 3.10 and older, and R with it, know only drafts of zarr 3.
  const base2 = base.replace(/\/([^/]*)$/, "/zarr2/$1");
  // GDAL puts names into URLs as they are, so the server quotes them for it. Safe names have nothing else to quote.
  const [path2, group2, name2] = [path, group, name].map((x) => x.replaceAll(" ", "%20"));
  const slice = ":0".repeat(Math.max((variable?.shape.length ?? 2) - 2, 0));
  return (
    <>
      <h2>Open this</h2>
      {!isReport && !isStatic && (
        <>
          <p>The cube is a zarr group at <span class="url" data-url="zarr3">{base}</span>, and in zarr 2 at <span class="url">{base2}</span>.</p>
          <div class="controls"><VariableChoice {...props} /></div>
          <Snippet title="Python" code={`import xarray as xr\n\nds = xr.open_zarr("${base}"${inGroup})\nds["${name}"]`} note="Needs xarray, zarr, fsspec and aiohttp. virtualstack is not needed." />
          <Snippet title="JavaScript" code={`import * as zarr from "zarrita";\n\nconst cube = zarr.root(new zarr.FetchStore("${base}"));\nconst array = await zarr.open.v3(cube.resolve("${path}"), { kind: "array" });\nconst values = await zarr.get(array);`} note="Values are the stored numbers. If the variable has the attributes scale_factor or add_offset, scale them yourself." />
          <Snippet title="R" code={`library(stars)\n\nx <- read_mdim('ZARR:"/vsicurl/${base2}${group2 && "/" + group2}"', variable = "${name2}")`} note="Values are scaled, and missing values are NA. The order of dimensions is reversed. stars 0.6-0 stops at coordinates in degrees: take a newer one." />
          <Snippet title="GDAL" code={`gdalmdiminfo 'ZARR:"/vsicurl/${base2}"'\ngdalinfo 'ZARR:"/vsicurl/${base2}":/${path2}${slice}'`} note={`${slice && "The second line reads one slice: each number after a colon is an index, from 0. "}Values are the stored numbers: add -unscale to gdal_translate to scale them.`} />
          <p class="quiet small">If the server asks for a token, programs send <code>Authorization: Bearer TOKEN</code>, or have it as the password in the URL: <code>http://user:TOKEN@HOST/</code>.</p>
        </>
      )}
      {isStatic && <div class="controls"><VariableChoice {...props} /></div>}
      {overview.url && overview.kind !== "memory" && (
        <Snippet
          title="Python, with virtualstack"
          code={`import xarray as xr\n\nds = xr.open_dataset("${url}", engine="virtualstack"${inGroup}${overview.kind === "vstack" && overview.is_fixed ? `, at=${overview.version}` : ""})\nds["${name}"]`}
          note={isReport ? "This report holds facts, and no values." : isStatic ? "Reads the store, and the files that it refers to." : "Reads the sources without this server."}
        />
      )}
      {isStatic && (
        <Snippet
          title="JavaScript"
          code={`import { get, open, root } from "zarrita";\nimport { openVStack } from "vstack-reader";\n\nconst cube = await openVStack("${url}"${overview.is_fixed ? `, { snapshot: ${overview.version} }` : ""});\nconst array = await open(root(cube.store).resolve("/${path}"), { kind: "array" });\nconst values = await get(array);`}
          note="vstack-reader is part of the sources of virtualstack."
        />
      )}
    </>
  );
}

function Snippet({ title, code, note }: { title: string; code: string; note?: string }) {
  const [said, say] = useState("");
  const copy = () => navigator.clipboard.writeText(code).then(() => say("Copied"), () => say("Not allowed: select the text"));
  return (
    <section class="snippet" aria-label={title}>
      <h3>{title}</h3>
      <pre tabIndex={0}>{code}</pre>
      {navigator.clipboard && <p class="actions"><button type="button" onClick={copy}>Copy {title}</button> <span role="status" class="quiet">{said}</span></p>}
      {note && <p class="quiet small">{note}</p>}
    </section>
  );
}
