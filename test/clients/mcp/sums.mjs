// SPDX-License-Identifier: Apache-2.0
import { FastMCP } from "fastmcp";
import { z } from "zod";

const server = new FastMCP({ name: "sums", version: "1.0.0" });
server.addTool({
  name: "add",
  description: "Adds two numbers",
  annotations: { readOnlyHint: true },
  parameters: z.object({ a: z.number(), b: z.number() }),
  execute: async ({ a, b }) => String(a + b),
});
await server.start({ transportType: "httpStream", httpStream: { port: Number(process.env.PORT), host: "127.0.0.1" } });
