// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// HTTPMock answers HTTP requests in a test.
type HTTPMock struct {
	Request string `yaml:"request" required:"true" example:"GET /orders/4711" doc:"Method and path of the requests, or method and URL. A path also fits a longer path that ends with it. With a query the parameters must be equal, without one they may be any."`
	// Status is 0 for 200.
	Status  int               `yaml:"status" min:"200" max:"599" without:"200" example:"404" doc:"Status of the response."`
	JSON    any               `yaml:"json" example:"{state: sent}" doc:"JSON body of the response."`
	Text    string            `yaml:"text" doc:"Body of the response, in place of 'json'."`
	Headers map[string]string `yaml:"headers" example:"{X-Total: '2'}" doc:"Headers of the response."`
}

// mockedRequest is the form of HTTPMock.Request: a method and a path or URL.
var mockedRequest = regexp.MustCompile(`^([A-Z]+) +((?:/|https?://)\S*)$`)

// ParseMockedRequest returns the method of an HTTPMock.Request and its path or URL. The host of the URL is "" for a path.
// The method is "" if the text is invalid, which a build rejects.
func ParseMockedRequest(text string) (method string, target *url.URL) {
	parts := mockedRequest.FindStringSubmatch(text)
	if parts == nil {
		return "", &url.URL{}
	}
	target, err := url.Parse(parts[2])
	if err != nil {
		return "", &url.URL{}
	}
	return parts[1], target
}

// linkHTTPMocks checks the mocks of HTTP requests, and that the agent can send requests.
func (p *repoParser) linkHTTPMocks(source *node, mocks Mocks, agent string, known reachable) {
	for i := range mocks.HTTP {
		n := source.findNode("mocks", "http").items[i]
		at, m := n.pos, &mocks.HTTP[i]
		switch method, target := ParseMockedRequest(m.Request); {
		case m.Request == "": // Reported as missing.
		case !slices.Contains(methods, method):
			p.problems.add(at, `"request" must be a method and a path or URL, such as GET /orders/4711; the methods are %s`, strings.Join(methods, ", "))
		case target.Host != "" && target.Scheme == "":
			p.problems.add(at, `"request" has a path that begins with //`)
		case n.isWritten("json") && n.isWritten("text"):
			p.problems.add(at, `a mock has either "json" or "text"; remove one`)
		case !known.sendsHTTP:
			p.problems.add(at, "agent %q has no tool and no script that sends HTTP requests; remove the mock", agent)
		}
	}
}
