// SPDX-License-Identifier: Apache-2.0

// Package mcp calls tools of MCP servers (Model Context Protocol) over streamable HTTP, and lists
// them for builds.
//
// The protocol is the SDK's. This package decides which requests are sent, and how often. A call is never
// sent twice once a byte of it may have left, unless the tool is vouched for. The SDK assumes that a
// failed request did not reach the server, and one bad answer ends all calls of its session. So the
// HTTP transport below the SDK, type wire, records sent requests, reads answers within limits, and
// keeps their exact text.
package mcp
