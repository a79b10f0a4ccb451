"""The style of the report's page: readable by day and by night, on a wide screen and on a narrow one."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #fcfcfb; --ink: #1c1c1a; --soft: #5c5c58; --grid: #e2e2dd;
  --s1: #1f5fbf; --s2: #b3530a; --s3: #7a2d8f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #161615; --ink: #ecece8; --soft: #a3a39c; --grid: #353532;
    --s1: #7fb0ff; --s2: #f5a35c; --s3: #d79bea;
  }
}
body {
  background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  max-width: 760px; margin: 2rem auto; padding: 0 1rem;
}
h1 { font-size: 1.5rem; }
h1, dd { overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin-top: 2.2rem; }
p, dl { color: var(--soft); }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 0 1rem; }
dd { margin: 0; }
svg { width: 100%; min-width: 36rem; height: auto; }
svg text { font-size: 12px; fill: var(--soft); }
polyline, line { fill: none; stroke-width: 2; }
.s1 { stroke: var(--s1); }
.s2 { stroke: var(--s2); }
.s3 { stroke: var(--s3); }
.grid { stroke: var(--grid); stroke-width: 1; }
circle.s1, svg text.s1 { fill: var(--s1); }
circle.s2, svg text.s2 { fill: var(--s2); }
circle.s3, svg text.s3 { fill: var(--s3); }
svg text.name { stroke: none; font-weight: 600; }
/* A whole chart on a phone, with letters that stay readable. */
@media (max-width: 36rem) {
  svg { min-width: 0; }
  svg text { font-size: 15px; }
}
/* The table has more columns than the text is wide. */
.wide {
  overflow-x: auto; width: fit-content; max-width: calc(100vw - 2rem); margin-left: 50%; transform: translateX(-50%);
}
.chart { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 0.25rem 0.6rem; border-bottom: 1px solid var(--grid); white-space: nowrap; }
th { white-space: normal; vertical-align: bottom; }
"""
