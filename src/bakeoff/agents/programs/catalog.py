"""The catalog of external coding agents, one declaration each.

Each gets the instruction on its standard input, if it reads it there, knows its model as `bakeoff`
(a name that none of them treats specially), and finds the gateway through its environment or a file
in the home of the box. Placeholders such as `{gateway}` are those of `output.FIELDS`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Dialect = Literal["chat", "responses", "anthropic", "gemini"]

MODEL = "bakeoff"


@dataclass(frozen=True, kw_only=True)
class Final:
    """Where a program's JSON lines hold its final message: in events that match `event`."""

    event: Mapping[str, str]
    text: str


@dataclass(frozen=True, kw_only=True)
class AgentProgram:
    """How one coding agent is installed, started and resumed, and how it finds its model.

    `first` are the arguments for the instruction, `again` those for a further message in the same
    session; None where it keeps no session, and the message becomes a new instruction. `files` are
    written to the home. `native` is where a package that starts with a script keeps the real program;
    `temporary_files` are left in the task's folder by the program and removed.
    """

    name: str
    title: str
    executable: str
    package: str
    dialect: Dialect
    first: tuple[str, ...]
    again: tuple[str, ...] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    native: str | None = None
    temporary_files: tuple[str, ...] = ()
    final: Final | None = None
    installed_by: str = "npm install -g"

    @property
    def install(self) -> str:
        """The command that installs it."""
        return f"{self.installed_by} {self.package}"


_CODEX_FLAGS = ("--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")

CODEX = AgentProgram(
    name="codex",
    title="OpenAI's Codex",
    executable="codex",
    package="@openai/codex",
    dialect="responses",
    first=("exec", *_CODEX_FLAGS, "--color", "never", "-"),
    again=("exec", "resume", "--last", *_CODEX_FLAGS, "-"),
    environment={"BAKEOFF_TOKEN": "{token}"},
    files={
        ".codex/config.toml": """\
model = "{model}"
model_provider = "bakeoff"
web_search = "disabled"
check_for_update_on_startup = false

[analytics]
enabled = false

[features]
plugins = false
apps = false
multi_agent = false
goals = false

[model_providers.bakeoff]
name = "bakeoff"
base_url = "{gateway}/v1"
env_key = "BAKEOFF_TOKEN"
wire_api = "responses"
request_max_retries = 2
stream_max_retries = 2
"""
    },
    native="@openai/codex-*/vendor/*/bin/codex",
    final=Final(event={"type": "item.completed", "item.type": "agent_message"}, text="item.text"),
)

_CLAUDE_FLAGS = (
    "--print",
    "--output-format=stream-json",
    "--verbose",
    "--dangerously-skip-permissions",
    "--disallowedTools=WebSearch,WebFetch",
    "--model={model}",
)

CLAUDE_CODE = AgentProgram(
    name="claude-code",
    title="Claude Code",
    executable="claude",
    package="@anthropic-ai/claude-code",
    dialect="anthropic",
    first=_CLAUDE_FLAGS,
    again=(*_CLAUDE_FLAGS, "--continue"),
    environment={
        "ANTHROPIC_BASE_URL": "{gateway}",
        "ANTHROPIC_AUTH_TOKEN": "{token}",
        "ANTHROPIC_SMALL_FAST_MODEL": "{model}",
        "IS_SANDBOX": "1",  # else it refuses to skip permissions as root, which it is in containers
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
    },
    final=Final(event={"type": "result"}, text="result"),
)

CONTINUE = AgentProgram(
    name="continue",
    title="Continue's `cn`",
    executable="cn",
    package="@continuedev/cli",
    dialect="chat",
    first=("--auto", "-p"),  # -p last: an argument after it would be the prompt instead of stdin
    again=("--auto", "--resume", "-p"),
    environment={
        "CONTINUE_CLI_ENABLE_TELEMETRY": "0",
        "CONTINUE_METRICS_ENABLED": "0",
        "CONTINUE_TELEMETRY_ENABLED": "0",
    },
    files={
        ".continue/config.yaml": """\
name: bakeoff
version: 1.0.0
schema: v1
models:
  - name: {model}
    provider: openai
    model: {model}
    apiBase: {gateway}/v1
    apiKey: {token}
    roles: [chat, edit, apply]
    capabilities: [tool_use]
"""
    },
)

_OPENCODE_FLAGS = ("run", "--format=json", "--model=bakeoff/{model}")

OPENCODE = AgentProgram(
    name="opencode",
    title="opencode",
    executable="opencode",
    package="opencode-ai",
    dialect="chat",
    first=(*_OPENCODE_FLAGS, "--title=task"),  # without a title it asks the model for one
    again=(*_OPENCODE_FLAGS, "--continue"),
    environment={
        "BAKEOFF_TOKEN": "{token}",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_SHARE": "1",
    },
    files={
        ".config/opencode/opencode.json": """\
{
  "autoupdate": false,
  "share": "disabled",
  "permission": {"*": "allow", "webfetch": "deny", "websearch": "deny"},
  "model": "bakeoff/{model}",
  "small_model": "bakeoff/{model}",
  "provider": {
    "bakeoff": {
      "npm": "@ai-sdk/openai-compatible",
      "name": "bakeoff",
      "options": {"baseURL": "{gateway}/v1", "apiKey": "{env:BAKEOFF_TOKEN}"},
      "models": {
        "{model}": {
          "name": "{model}",
          "tool_call": true,
          "limit": {"context": 128000, "output": 8192}
        }
      }
    }
  }
}
"""
    },
    final=Final(event={"type": "text"}, text="part.text"),
)

_QWEN_FLAGS = ("--auth-type=openai", "--yolo", "--output-format=stream-json", "--model={model}")

QWEN_CODE = AgentProgram(
    name="qwen-code",
    title="Qwen Code",
    executable="qwen",
    package="@qwen-code/qwen-code",
    dialect="chat",
    first=_QWEN_FLAGS,
    again=(*_QWEN_FLAGS, "--continue"),
    environment={
        "OPENAI_BASE_URL": "{gateway}/v1",
        "OPENAI_API_KEY": "{token}",
        "OPENAI_MODEL": "{model}",
        "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
        "QWEN_TELEMETRY_ENABLED": "0",
    },
    files={
        ".qwen/settings.json": """\
{
  "general": {"enableAutoUpdate": false},
  "memory": {"enableManagedAutoMemory": false, "enableManagedAutoDream": false},
  "privacy": {"usageStatisticsEnabled": false},
  "telemetry": {"enabled": false},
  "tools": {"exclude": ["web_fetch", "web_search"]}
}
"""
    },
    final=Final(event={"type": "result"}, text="result"),
)

_GEMINI_FLAGS = ("--yolo", "--skip-trust", "--output-format=stream-json", "--model={model}")

GEMINI_CLI = AgentProgram(
    name="gemini-cli",
    title="Gemini CLI",
    executable="gemini",
    package="@google/gemini-cli",
    dialect="gemini",
    first=_GEMINI_FLAGS,
    again=(*_GEMINI_FLAGS, "--resume=latest"),
    environment={
        "GOOGLE_GEMINI_BASE_URL": "{gateway}",
        "GEMINI_API_KEY": "{token}",
        "GEMINI_TELEMETRY_ENABLED": "false",
    },
    files={
        ".gemini/settings.json": """\
{
  "general": {"enableAutoUpdate": false},
  "privacy": {"usageStatisticsEnabled": false},
  "security": {"auth": {"selectedType": "gemini-api-key"}},
  "telemetry": {"enabled": false},
  "tools": {"exclude": ["google_web_search", "web_fetch"]}
}
"""
    },
)

_AIDER_FLAGS = (
    "--model=openai/{model}",
    "--message-file={instruction_file}",
    "--yes-always",
    "--no-analytics",
    "--no-auto-commits",
    "--no-check-update",
    "--no-detect-urls",
    "--no-gitignore",
    "--no-pretty",
    "--no-show-model-warnings",
    "--no-show-release-notes",
    "--no-stream",
    "--chat-history-file={home}/aider.chat.md",
    "--input-history-file={home}/aider.input",
)

AIDER = AgentProgram(
    name="aider",
    title="Aider",
    executable="aider",
    package="aider-chat",
    installed_by="uv tool install --python 3.12",
    dialect="chat",
    first=_AIDER_FLAGS,
    again=(*_AIDER_FLAGS, "--restore-chat-history"),
    environment={
        "OPENAI_API_BASE": "{gateway}/v1",
        "OPENAI_API_KEY": "{token}",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    },
    temporary_files=(".aider.tags.cache.v*",),
)

MINI_SWE_AGENT = AgentProgram(
    name="mini-swe-agent",
    title="mini-swe-agent",
    executable="mini",
    package="mini-swe-agent",
    installed_by="uv tool install --with mcp",
    dialect="chat",
    first=(
        "--yolo",
        "--exit-immediately",
        "--cost-limit=0",
        "--model=openai/{model}",
        "--output={home}/trajectory.json",
        "--config=mini.yaml",
        "--config=model.model_kwargs.api_base={gateway}/v1",
        "--task={instruction}",
    ),
    environment={
        "OPENAI_API_KEY": "{token}",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_GLOBAL_CONFIG_DIR": "{home}/.config/mini-swe-agent",
        "MSWEA_SILENT_STARTUP": "1",
    },
)

PROGRAMS: Mapping[str, AgentProgram] = {
    program.name: program
    for program in (
        AIDER,
        CLAUDE_CODE,
        CODEX,
        CONTINUE,
        GEMINI_CLI,
        MINI_SWE_AGENT,
        OPENCODE,
        QWEN_CODE,
    )
}
