"""The providers that can be named: which adapter speaks to them, where they are, whose key it takes.

Addresses and variables are the documented ones; only the local servers were tried from here.
"""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from bakeoff._lib.value_object import value_object
from bakeoff.core.values import Json


@value_object
class Provider:
    """A place where models are, by the name it goes by in `provider/model`.

    `url_variables` name it where no config does, the first that is set; `host_variable` is Ollama's,
    which is read anew at each start.
    """

    adapter: str = "openai-compatible"
    base_url: str | None = None
    key: str | None = None
    key_header: str | None = None
    host_variable: str | None = None
    url_variables: tuple[str, ...] = ()
    what: str = ""
    settings: Mapping[str, Json] = field(default_factory=dict)

    @property
    def local(self) -> bool:
        """Whether it runs on the user's own machine."""
        return self.key is None


def _cloud(base_url: str, key: str, what: str) -> Provider:
    return Provider(base_url=base_url, key=key, what=what)


def _server(base_url: str, what: str) -> Provider:
    return Provider(base_url=base_url, what=what)


_OPENAI_URLS = ("OPENAI_BASE_URL", "OPENAI_API_BASE")

PROVIDERS: Mapping[str, Provider] = MappingProxyType(
    {
        "anthropic": Provider(
            adapter="anthropic",
            base_url="https://api.anthropic.com",
            key="ANTHROPIC_API_KEY",
            url_variables=("ANTHROPIC_BASE_URL",),
            what="Anthropic's Messages API",
        ),
        "azure": Provider(
            key="AZURE_OPENAI_API_KEY",
            key_header="api-key",
            url_variables=("AZURE_OPENAI_ENDPOINT",),
            what="Azure OpenAI; give the deployment's URL as base_url, or AZURE_OPENAI_ENDPOINT",
        ),
        "cerebras": _cloud("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", "Cerebras"),
        "cohere": _cloud("https://api.cohere.ai/compatibility/v1", "COHERE_API_KEY", "Cohere"),
        "deepseek": _cloud("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", "DeepSeek"),
        "embedded": Provider(adapter="embedded", what="a real small LLM in this process"),
        "fireworks": _cloud(
            "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY", "Fireworks"
        ),
        "google": Provider(
            adapter="gemini",
            base_url="https://generativelanguage.googleapis.com",
            key="GEMINI_API_KEY",
            url_variables=("GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"),
            what="Google's Gemini API",
        ),
        "groq": _cloud("https://api.groq.com/openai/v1", "GROQ_API_KEY", "Groq"),
        "huggingface": _cloud("https://router.huggingface.co/v1", "HF_TOKEN", "Hugging Face"),
        "llamacpp": _server("http://127.0.0.1:8080/v1", "llama.cpp's server"),
        "lmstudio": _server("http://127.0.0.1:1234/v1", "LM Studio"),
        "mistral": _cloud("https://api.mistral.ai/v1", "MISTRAL_API_KEY", "Mistral"),
        "nvidia": _cloud("https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY", "NVIDIA"),
        "ollama": Provider(
            adapter="ollama",
            base_url="http://127.0.0.1:11434",
            host_variable="OLLAMA_HOST",
            what="an Ollama server",
        ),
        "openai": Provider(
            base_url="https://api.openai.com/v1",
            key="OPENAI_API_KEY",
            url_variables=_OPENAI_URLS,
            what="OpenAI's chat API",
            settings={"rename": {"max_tokens": "max_completion_tokens"}},
        ),
        "openai-compatible": Provider(what="any server with OpenAI's API; give its base_url"),
        "openai-responses": Provider(
            adapter="openai-responses",
            base_url="https://api.openai.com/v1",
            key="OPENAI_API_KEY",
            url_variables=_OPENAI_URLS,
            what="OpenAI's Responses API",
        ),
        "openrouter": _cloud("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "OpenRouter"),
        "perplexity": _cloud("https://api.perplexity.ai", "PERPLEXITY_API_KEY", "Perplexity"),
        "scripted": Provider(adapter="scripted", what="a script; for trying things out"),
        "sglang": _server("http://127.0.0.1:30000/v1", "SGLang"),
        "together": _cloud("https://api.together.xyz/v1", "TOGETHER_API_KEY", "Together"),
        "vllm": _server("http://127.0.0.1:8000/v1", "vLLM"),
        "xai": _cloud("https://api.x.ai/v1", "XAI_API_KEY", "xAI"),
    }
)
